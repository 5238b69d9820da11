"""Checks of unions, made while the plan is built."""

from __future__ import annotations

from dsv2.errors import PlanError
from dsv2.graph.plan import Operator, OperatorKind, Plan

__all__ = ("check_unions",)


def check_unions(plan: Plan) -> None:
    """Raise ``PlanError`` if an operator before a union declares an aligned watermark.

    The inputs of a union are combined, but do not wait for each other.
    """
    for union in plan.operators:
        if union.kind is not OperatorKind.UNION:
            continue
        for operator in _upstream(plan, union):
            for name in (declaration.identifier for declaration in operator.body.declare_watermarks()):  # type: ignore[union-attr]
                if plan.declarations[name].combination_policy.aligned:
                    raise PlanError(
                        f"{union} at {union.location}: the aligned watermark {name!r}, which {operator} at "
                        f"{operator.location} declares, cannot pass a union. Declare it without aligned(), or connect "
                        f"the streams with a function that has two inputs."
                    )


def _upstream(plan: Plan, operator: Operator) -> list[Operator]:
    found = {edge.source: plan.operators[edge.source] for edge in plan.edges_into[operator.id]}
    waiting = list(found)
    while waiting:
        for edge in plan.edges_into[waiting.pop()]:
            if edge.source not in found:
                found[edge.source] = plan.operators[edge.source]
                waiting.append(edge.source)
    return list(found.values())
