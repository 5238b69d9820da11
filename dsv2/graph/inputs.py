"""Checks of operators with several inputs, made while the plan is built."""

from __future__ import annotations

from dsv2.errors import PlanError
from dsv2.graph.plan import OperatorKind, Plan
from dsv2.watermark.event_time import EVENT_TIME


def check_unions(plan: Plan) -> None:
    """Raise ``PlanError`` if an operator before a union declares an aligned watermark.

    The inputs of a union are combined, but do not wait for each other.
    """
    for union in plan.operators:
        if union.kind is not OperatorKind.UNION:
            continue
        for operator in plan.upstream_of(union):
            for name in (declaration.identifier for declaration in operator.declared_watermarks):
                policy = plan.declarations[name].combination_policy
                if policy.aligned and policy.barrier is None:
                    raise PlanError(
                        f"{union} at {union.location}: the aligned watermark {name!r}, which {operator} at "
                        f"{operator.location} declares, cannot pass a union. Declare it as a barrier() or without "
                        f"aligned(), or connect the streams with a function that has two inputs."
                    )


def check_waits(plan: Plan) -> None:
    """Raise ``PlanError`` if an operator waits for a watermark that nothing declares, or that one channel can send."""
    for operator in plan.operators:
        name = None if operator.broadcast_wait is None else operator.broadcast_wait.identifier
        if name is None:
            continue
        what, problem = "watermark", ""
        if name not in plan.declarations:
            problem = "but no function or source of the job declares it."
        elif plan.declarations[name].combination_policy.barrier is not None:
            what = "barrier"
            problem = (
                "which itself waits for the other input. Wait for another watermark. A barrier needs no "
                "WaitForBroadcast: both inputs stop at it."
            )
        elif name in operator.passes_on:
            problem = (
                f"which is addressed to other operators. Address it to this one as well: deliver_to({operator.uid!r})."
            )
        elif name != EVENT_TIME and not plan.declarations[name].combination_policy.combine_wait_for_all_channels:
            problem = "which the first subtask can send alone. Declare it with combine_wait_for_all_channels(True)."
        if problem:
            who = f"{operator} at {operator.location}"
            raise PlanError(f"{who} waits for the {what} {name!r} of its broadcast side, {problem}")
