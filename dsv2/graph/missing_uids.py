"""Checks for stateful operators without a user-defined uid, before a job with a checkpoint starts."""

from __future__ import annotations

from dsv2.errors import ConfigurationError, MissingUidWarning
from dsv2.graph.plan import Operator, OperatorKind, Plan
from dsv2.graph.stateful import may_keep_state


def check_uids(plan: Plan) -> None:
    """Check the stateful operators that have an automatic uid.

    Warns about each function, at the line that created the operator. Raises ``ConfigurationError`` for operators that
    differ only in their order: if they were reordered, each would restore the state of the other.
    """
    unnamed = [operator for operator in plan.operators if operator.automatic_uid and may_keep_state(operator.body)]
    if twins := [operator for operator in unnamed if operator.twin is not None]:
        listed = "\n".join(f"  - {_shown(operator)} like the operator at {operator.twin}" for operator in twins)
        raise ConfigurationError(
            f"These stateful operators differ from others of the same class with the same inputs only in their "
            f"order:\n{listed}\n"
            f"Set a uid on each of them: with_uid(...)."
        )
    for operator in unnamed:
        if operator.kind is not OperatorKind.SOURCE:  # Spark identifies sources by their order
            text = (
                f"{_shown(operator)} has state and no uid. The checkpoint identifies it by its class, its states and "
                f"its inputs, so a restart is refused if one of these has changed. Set a uid: with_uid(...)."
            )
            operator.warn(text, MissingUidWarning)


def _shown(operator: Operator) -> str:
    return f"{operator}, defined at {operator.location},"
