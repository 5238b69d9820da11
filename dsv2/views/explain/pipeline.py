"""Explains the pipeline of an environment, whether or not it can be built."""

from __future__ import annotations

from collections.abc import Callable

from dsv2.errors import Dsv2Error
from dsv2.graph import Plan, PlanBuilder
from dsv2.jobs.handle import JobRuntime
from dsv2.model.context import RuntimeExecutionMode
from dsv2.plan_view.runtime_view import ExplainingRuntime
from dsv2.plan_view.view import view_of_nodes
from dsv2.views.explain.explanation import Explanation, ExplanationFormatChoice, explain


def explain_pipeline(
    builder: PlanBuilder,
    build: Callable[[], Plan],
    load_runtime: Callable[[], JobRuntime],
    *,
    job_name: str,
    mode: RuntimeExecutionMode,
    parallelism: int,
    format: ExplanationFormatChoice,
) -> Explanation:
    """Explain the pipeline of ``builder``.

    Args:
        builder: The nodes of the pipeline.
        build: Builds its plan.
        load_runtime: Returns the runtime.
        job_name: The name of the job.
        mode: The execution mode that the user has set.
        parallelism: The default parallelism.
        format: The format of ``str()`` of the result.
    """
    try:
        plan = build()
        runtime = load_runtime()
        known = runtime.runtime_view(plan) if isinstance(runtime, ExplainingRuntime) else None
        return explain(plan, format, runtime=known)
    except Dsv2Error as error:
        return Explanation(view_of_nodes(builder.nodes, job_name, mode.value, parallelism, error), format)
