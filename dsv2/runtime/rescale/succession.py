"""How the operators of a plan continue those of an earlier program, as the tasks of a runtime use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsv2.graph import Exchange, Operator, Plan
from dsv2.runtime.exchange.gate_states import GateState
from dsv2.runtime.rescale.change import EarlierInput, EarlierOperator, changes, new_input
from dsv2.runtime.rescale.gates import new_gate
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
        ended: For each source, by uid, which of its subtasks had ended.
    """

    def __init__(
        self, plan: Plan, program: Mapping[str, Any], codec: Codec, ended: Mapping[str, Sequence[bool]]
    ) -> None:
        self._plan = plan
        self._codec = codec
        self._ended = _ended_senders(plan, ended)
        self._changes = changes(plan, earlier_operators(program), self._ended)

    def parts(self, operator: Operator, subtask: int, old: Sequence[OperatorState]) -> OperatorState:
        """Return the state of the new subtask ``subtask`` from those of the old ones, which are ordered by index.

        Raises:
            IncompatibleCheckpointError: See ``rescaled_states``.
        """
        change = self._changes[operator.uid]
        (state,) = rescaled_states(operator, change, old, self._plan.declarations, self._codec, [subtask])
        return state

    def first_gates(self, operator: Operator, subtask: int) -> list[GateState]:
        """Return the gates of an operator that is new. Sources that have ended do not tell it."""
        return [
            new_gate(new_input(self._plan, edge, self._ended), subtask) for edge in self._plan.edges_into[operator.id]
        ]


def _ended_senders(plan: Plan, ended: Mapping[str, Sequence[bool]]) -> dict[int, list[int]]:
    """The subtasks that have ended of sources, and of the operators that run in the tasks of sources."""
    found = {
        operator.id: [index for index, has_ended in enumerate(ended[operator.uid]) if has_ended]
        for operator in plan.operators
        if operator.uid in ended
    }
    for operator in plan.chained_to_sources:  # upstream first
        (edge,) = plan.edges_into[operator.id]
        if edge.source in found:
            found[operator.id] = found[edge.source]
    return found
