"""Operators that should have a uid of the user's before a job with a checkpoint starts."""

from __future__ import annotations

import warnings

from dsv2.errors import ConfigurationError, MissingUidWarning
from dsv2.graph.plan import Operator, OperatorKind, Plan
from dsv2.graph.stateful import may_keep_state

__all__ = ("check_uids",)


def check_uids(plan: Plan) -> None:
    """Look at the operators that keep state and have only an automatic uid.

    Warns of each function, at the line that made the operator. Raises ``ConfigurationError`` for those that differ
    only in their order: if two of them changed places, each would take over the state of the other.
    """
    unnamed = [operator for operator in plan.operators if operator.automatic_uid and may_keep_state(operator.body)]
    if twins := [operator for operator in unnamed if operator.twin is not None]:
        listed = "\n".join(f"  - {_shown(operator)} as the one at {operator.twin}" for operator in twins)
        raise ConfigurationError(
            f"These operators keep state, and only their order tells them apart from others of the same class with the "
            f"same inputs:\n{listed}\n"
            f"Give each of them a name that stays with the checkpoint: with_uid(...)."
        )
    for operator in unnamed:
        if operator.kind is not OperatorKind.SOURCE:  # of different classes, and Spark knows them by their order
            file, _, line = operator.location.rpartition(":")
            text = (
                f"{_shown(operator)} keeps state and has no uid. The checkpoint knows it by its class, its states and "
                f"its inputs, so a restart is refused when one of these has changed. Name it: with_uid(...)."
            )
            warnings.warn_explicit(text, MissingUidWarning, file, int(line))


def _shown(operator: Operator) -> str:
    return f"{operator}, defined at {operator.location},"
