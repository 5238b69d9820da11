"""The ways to continue a job after a callback has failed, as the error shows them."""

from __future__ import annotations

from collections.abc import Sequence

from dsv2.errors import UserFunctionError
from dsv2.graph import OperatorKind, Plan
from dsv2.sinks import Sink

__all__ = ("TO_TRACE", "with_ways_out")

TO_TRACE = "With execute(..., trace_records=True) the error names the position of the record."

_NOT_COVERED = ("open", "close", "create_reader", "key selector of an output")


def with_ways_out(failure: UserFunctionError, plan: Plan, ranges: Sequence[str], to_name_it: str) -> UserFunctionError:
    """Return ``failure`` with the ways to continue.

    Args:
        failure: The failure.
        plan: The plan of the job.
        ranges: What the micro-batch has read of each source (``ranges_read``). Used if the record's position is
            unknown.
        to_name_it: How to get an error that names the position. Empty: it cannot be named.
    """
    position = failure.position
    lines = []
    if position is None and ranges:
        lines += ["The micro-batch has read:", *(f"  - {described}" for described in ranges)]
    if position is None and failure.record is not None and to_name_it:
        lines.append(to_name_it)
    lines.append("To continue, do one of these:")
    if position is not None:
        pair = (position.split, position.offset)
        lines.append(f"  - skip this record once: execute(..., skip_records={{{position.source!r}: [{pair!r}]}})")
    if _may_have_policy(failure, plan):
        lines.append(
            f"  - set an error policy for the operator: with_error_policy(ErrorPolicy().skip({failure.cause_type})), "
            f"or dead_letter"
        )
    lines.append("  - fix the program, and start it again: it processes the same records")
    return failure.with_ways_out("\n".join(lines))


def _may_have_policy(failure: UserFunctionError, plan: Plan) -> bool:
    if failure.cause_type == "ResourceError":
        return False
    operators = [operator for operator in plan.operators if str(operator) == failure.operator]
    if failure.callback in _NOT_COVERED or not operators or isinstance(operators[0].body, Sink):
        return False
    if operators[0].kind is OperatorKind.SOURCE and failure.callback != "decode":
        return False
    return operators[0].body.dsv2_refuses_error_policy is None
