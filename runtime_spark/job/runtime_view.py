"""Spark's view of a plan, for ``ExecutionEnvironment.explain`` and the command line. Needs no session."""

from __future__ import annotations

from dsv2.errors import PlanError
from dsv2.graph import OperatorKind, Plan
from dsv2.model.context import RuntimeExecutionMode
from dsv2.plan_view.runtime_view import Fact, RuntimeView
from runtime_spark.frames.layout import Layout
from runtime_spark.sink.sinks import check_sink
from runtime_spark.source.sources import check_source


def runtime_view(plan: Plan, layout: Layout) -> RuntimeView:
    """Return how a session would run ``plan`` with ``layout``."""
    levels = len(layout.levels)
    facts = [
        Fact("tasks per level", layout.partitions),
        Fact("tasks per micro-batch, without those of sources and sinks", layout.partitions * levels),
        Fact("shuffles per micro-batch", levels),
    ]
    if plan.mode is RuntimeExecutionMode.STREAMING:
        facts.append(Fact("state layout", layout.state.value))
    return RuntimeView("Spark", one_process=False, facts=tuple(facts), refusal=_refusal(plan))


def _refusal(plan: Plan) -> str | None:
    try:
        for operator in plan.operators:
            if operator.kind is OperatorKind.SINK:
                check_sink(plan, operator)
            elif operator.kind is OperatorKind.SOURCE:
                check_source(operator)
    except PlanError as error:
        return f"{type(error).__name__}: {error}"
    return None
