"""The ways to continue a job after a callback has failed, as the error shows them."""

from __future__ import annotations

from collections.abc import Sequence

from dsv2.errors import ContractError, InternalError, InvalidKeyError, UserFunctionError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.sinks import Sink

TO_TRACE = "With execute(..., trace_records=True) the error names the position of the record."

_MISTAKES: tuple[type[Exception], ...] = (
    ContractError,
    *(kind for kind in ContractError.__subclasses__() if kind is not InvalidKeyError),
    ImportError,
    InternalError,
    ModuleNotFoundError,
    NameError,
    NotImplementedError,
    UnboundLocalError,
)
_NAMES_OF_MISTAKES = frozenset(kind.__name__ for kind in _MISTAKES)
"""Errors of the program, which it would raise for other records as well. A key may be invalid in one record only."""

_TO_FIX = "fix the program, and start it again: it processes the same records"
_NOT_COVERED = ("open", "close", "create_reader", "key selector of an output")


def with_remedies(failure: UserFunctionError, plan: Plan, ranges: Sequence[str], hint: str) -> UserFunctionError:
    """Return ``failure`` with the ways to continue.

    Args:
        failure: The failure.
        plan: The plan of the job.
        ranges: What the micro-batch has read of each source (``ranges_read``). Used if the record's position is
            unknown.
        hint: How to get an error that names the position. Empty: it cannot be named.
    """
    position = failure.position
    lines = []
    if position is None and ranges:
        lines += ["The micro-batch has read:", *(f"  - {described}" for described in ranges)]
    if position is None and failure.record is not None and hint:
        lines.append(hint)
    if failure.cause_type in _NAMES_OF_MISTAKES:
        return failure.with_remedies("\n".join([*lines, f"To continue, {_TO_FIX}."]))
    lines.append("To continue, do one of these:")
    if position is not None:
        pair = (position.split, position.offset)
        lines.append(f"  - skip this record once: execute(..., skip_records={{{position.source!r}: [{pair!r}]}})")
    if (operator := _operator_with_policy(failure, plan)) is not None:
        lines.append(f"  - {_change_of_policy(failure, operator)}")
    lines.append(f"  - {_TO_FIX}")
    return failure.with_remedies("\n".join(lines))


def _operator_with_policy(failure: UserFunctionError, plan: Plan) -> Operator | None:
    """The operator that failed, if an error policy of it can cover the failure."""
    if failure.cause_type == "ResourceError" or failure.callback in _NOT_COVERED:
        return None
    operator = next((operator for operator in plan.operators if str(operator) == failure.operator), None)
    if operator is None or isinstance(operator.body, Sink):
        return None
    if operator.kind is OperatorKind.SOURCE and failure.callback != "decode":
        return None
    return operator if operator.body.dsv2_refuses_error_policy is None else None


def _change_of_policy(failure: UserFunctionError, operator: Operator) -> str:
    policy, rule = operator.error_policy, f"skip({failure.cause_type})"
    if policy is None:
        return f"set an error policy for the operator: with_error_policy(ErrorPolicy().{rule}), or dead_letter"
    if failure.exceeds_limit:
        limits = {"total": policy.max_failures, "per_micro_batch": policy.max_failures_per_micro_batch}
        present = ", ".join(f"{name}={limit}" for name, limit in limits.items() if limit is not None)
        return f"set a higher limit in the error policy of the operator, which has limit({present})"
    return f"let the error policy of the operator cover this error: {rule}, or dead_letter"
