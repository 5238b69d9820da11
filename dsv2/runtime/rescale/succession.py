"""The succession of a plan to an earlier program: states of its operators, as the tasks of a runtime use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv2.graph import Exchange, Operator, Plan
from dsv2.runtime.exchange.control_log import Control
from dsv2.runtime.operator.time_sender import SentBefore
from dsv2.runtime.rescale.change import EarlierOperator, Senders, changes
from dsv2.runtime.rescale.operator_states import OperatorState, rescaled_states, subtask_states
from dsv2.runtime.serde.codec import Codec


class ProgramSuccession:
    """Decides what the subtasks of a plan continue. Immutable, and the same in all tasks.

    Args:
        plan: The new program.
        earlier: The operators of the earlier program, by uid.
        codec: Decodes and encodes state.
        sent: What the readers of the sources that the earlier program had have sent, by uid.
    """

    def __init__(
        self,
        plan: Plan,
        earlier: Mapping[str, EarlierOperator],
        codec: Codec,
        sent: Mapping[str, Sequence[SentBefore]],
    ) -> None:
        self._plan = plan
        self._codec = codec
        self._sent = sent
        self._changes = changes(plan, earlier)

    def parts(self, operator: Operator, subtask: int, old: Sequence[OperatorState]) -> OperatorState:
        """Return the state of the new subtask ``subtask`` from those of the old ones, which are ordered by index.

        Raises:
            IncompatibleCheckpointError: See ``rescaled_states``.
        """
        change = self._changes[operator.uid]
        (state,) = rescaled_states(operator, change, old, self._plan.declarations, self._codec, [subtask])
        return state

    def first_states(
        self, operator: Operator, subtask: int, given: Sequence[Mapping[str, bytes]]
    ) -> Mapping[str, bytes]:
        """Return the states of a subtask of an operator that no program has run, but whose states were given.

        Args:
            operator: The operator.
            subtask: The subtask.
            given: The states by stored name, for each subtask of the program for which they were given.
        """
        return subtask_states(operator, given, self._codec)[subtask]

    def announcements(self, operator: Operator, subtask: int) -> list[tuple[int, list[Control]]]:
        """Return what sources had sent before on the channels into a subtask of ``operator`` that are new.

        Returns:
            Channels, numbered over all inputs, with control elements. Channels without any are left out.
        """
        change = self._changes.get(operator.uid)
        found: list[tuple[int, list[Control]]] = []
        first = 0
        for edge in self._plan.edges_into[operator.id]:
            source = self._plan.operators[self._plan.chain_heads[edge.source]]
            sent = self._sent.get(source.uid, ())
            if change is None or change.inputs[edge.input].senders is Senders.NEW:
                channels = sent[subtask : subtask + 1] if edge.exchange is Exchange.FORWARD else sent
                found += [(first + number, one.controls()) for number, one in enumerate(channels) if one.controls()]
            first += self._plan.channels_of(edge)
        return found

    def has_new_senders(self, uid: str, number: int) -> bool:
        """Return whether the operator ``uid`` is new, or its input ``number`` received from other operators before."""
        change = self._changes.get(uid)
        return change is None or change.inputs[number].senders is Senders.NEW
