"""How the operators of a plan continue those of an earlier program, as the tasks of a runtime use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsv2.graph import Exchange, Operator, Plan
from dsv2.runtime.rescale.change import EarlierInput, EarlierOperator, Senders, changes
from dsv2.runtime.rescale.operator_states import OperatorState, rescaled_states
from dsv2.runtime.serde.codec import Codec

__all__ = ("ProgramSuccession", "earlier_operators")


def earlier_operators(program: Mapping[str, Any]) -> dict[str, EarlierOperator]:
    """Return the operators of a program by uid.

    Args:
        program: Its description in a checkpoint or savepoint: ``operators`` by uid, with ``parallelism``,
            ``max_parallelism`` and ``inputs``, each with ``from``, ``output`` and ``exchange``.
    """
    return {
        uid: EarlierOperator(
            operator["parallelism"],
            operator["max_parallelism"],
            tuple(EarlierInput(one["from"], one["output"], Exchange(one["exchange"])) for one in operator["inputs"]),
        )
        for uid, operator in program["operators"].items()
    }


class ProgramSuccession:
    """Decides what the subtasks of a plan continue. Immutable, and the same in all tasks.

    Args:
        plan: The new program.
        program: The description of the earlier program, see ``earlier_operators``.
        codec: Decodes and encodes state.
    """

    def __init__(self, plan: Plan, program: Mapping[str, Any], codec: Codec) -> None:
        self._declarations = plan.declarations
        self._codec = codec
        self._changes = changes(plan, earlier_operators(program))

    def parts(self, operator: Operator, subtask: int, old: Sequence[OperatorState]) -> OperatorState:
        """Return the state of the new subtask ``subtask`` from those of the old ones, which are ordered by index.

        Raises:
            IncompatibleCheckpointError: See ``rescaled_states``.
        """
        change = self._changes[operator.uid]
        (state,) = rescaled_states(operator, change, old, self._declarations, self._codec, [subtask])
        return state

    def has_new_senders(self, uid: str, number: int) -> bool:
        """Whether the operator ``uid`` is new, or its input ``number`` has received from other operators before."""
        change = self._changes.get(uid)
        return change is None or change.inputs[number].senders is Senders.NEW
