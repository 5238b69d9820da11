"""How the subtasks of a new program continue those of an old one. Keyed state is restored row by row instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsv2.errors import IncompatibleCheckpointError
from dsv2.graph import Exchange, Operator, Plan
from dsv2.program.description import Description
from dsv2.runtime.operator.subtask_restore import OperatorParts
from dsv2.runtime.rescale.channels import overlap
from dsv2.runtime.rescale.fields import succeeding_fields
from dsv2.runtime.rescale.gates import GateState, InputChange, succeeding_gate
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.migrations import split_name
from dsv2.state import ListStateDeclaration, RedistributionMode, RedistributionStrategy, StateDeclaration

__all__ = ("ProgramSuccession",)


class ProgramSuccession:
    """``Succession`` from an old program to a new one.

    Args:
        plan: The new program.
        program: The description of the old one.
        codec: Decodes and encodes state.
    """

    def __init__(self, plan: Plan, program: Description, codec: Codec) -> None:
        self._plan = plan
        self._old: Mapping[str, Any] = program["operators"]
        self._codec = codec

    def parts(self, operator: Operator, subtask: int, old: Sequence[OperatorParts]) -> OperatorParts:
        """Return the parts of the new subtask ``subtask`` of ``operator`` from those of all old subtasks, in order.

        Raises:
            IncompatibleCheckpointError: The parts cannot be carried to the new program.
            UserFunctionError: ``redistribute_fields`` of the function failed.
        """
        gates = self._gates(operator, subtask, old)
        if len(old) == operator.parallelism:
            return {**old[subtask], "gates": gates}
        return self._merged(operator, subtask, old, gates)

    def _gates(self, operator: Operator, subtask: int, old: Sequence[OperatorParts]) -> list[GateState]:
        changes = self._input_changes(operator, len(old), subtask)
        gates = []
        for index, change in enumerate(changes):
            of_input = [parts["gates"][index] for parts in old]
            is_same = change.old_senders == change.new_senders and len(old) == operator.parallelism
            if is_same and change.was_forward == change.is_forward:
                gates.append(of_input[subtask])
            else:
                declarations = self._plan.declarations
                gates.append(succeeding_gate(of_input, change, subtask, operator.parallelism, declarations))
        return gates

    def _input_changes(self, operator: Operator, old_parallelism: int, subtask: int) -> list[InputChange]:
        described = self._old[operator.uid]["inputs"]
        edges = self._plan.edges_into[operator.id]
        if len(described) != len(edges):
            raise IncompatibleCheckpointError(
                f"{operator}, defined at {operator.location}, had {len(described)} inputs and now has {len(edges)}."
            )
        return [
            InputChange(
                old_senders=self._old[before["from"]]["parallelism"],
                new_senders=self._plan.operators[edge.source].parallelism,
                was_forward=before["exchange"] == Exchange.FORWARD.value,
                is_forward=edge.exchange is Exchange.FORWARD,
                belongs=_belongs(operator, edge.input, edge.exchange, subtask),
            )
            for before, edge in zip(described, edges, strict=True)
        ]

    def _merged(
        self, operator: Operator, subtask: int, old: Sequence[OperatorParts], gates: Sequence[GateState]
    ) -> OperatorParts:
        parallelism = operator.parallelism
        own = [old[index] for index in overlap(subtask, parallelism, len(old))]
        counters = sorted({name for parts in old for name in parts["counters"]})
        is_first = subtask == 0
        fields = [parts["fields"] for parts in old]
        ended = [index for index, gate in enumerate(gates) if len(gate[2]) == gate[0]]
        return {
            "fields": succeeding_fields(operator, fields, parallelism, subtask, self._codec),
            "subtask_state": self._subtask_state(operator, subtask, [parts["subtask_state"] for parts in old]),
            "gates": gates,
            "watermarks": own[0]["watermarks"],
            "across_inputs": self._across_inputs([parts["across_inputs"] for parts in own]),
            "event_time": _event_time([parts["event_time"] for parts in own], ended),
            "sent_time": _sent_time([parts["sent_time"] for parts in own]),
            "inputs": _inputs([parts["inputs"] for parts in own], ended),
            "lifecycle": (True, all(closed for _, closed in (parts["lifecycle"] for parts in own))),
            "records_in": sum(parts["records_in"] for parts in old) if is_first else 0,
            "counters": {
                name: sum(parts["counters"].get(name, 0) for parts in old) if is_first else 0 for name in counters
            },
        }

    def _across_inputs(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The combiners over inputs. Behind an exchange they are equal; otherwise the one that is furthest behind."""
        merged: dict[str, Any] = {}
        for identifier in sorted({name for state in states for name in state}):
            found = [state[identifier] for state in states if identifier in state]
            if len(found) == len(states):
                merged[identifier] = min(found, key=repr) if len(set(map(repr, found))) > 1 else found[0]
        return merged

    def _subtask_state(self, operator: Operator, subtask: int, old: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
        declared = {declaration.name: declaration for declaration in operator.function.uses_states()}
        new: dict[str, bytes] = {}
        for stored in sorted({stored for state in old for stored in state}):
            declaration = declared.get(split_name(stored)[0])
            if declaration is None:
                continue
            owner = f"{declaration} of {operator}"
            values = [self._codec.loads(state[stored], owner) for state in old if stored in state]
            new[stored] = self._codec.dumps(_redistributed(declaration, values, subtask, operator.parallelism))
        return new


def _belongs(operator: Operator, input_index: int, exchange: Exchange, subtask: int) -> Callable[[Any, int, int], bool]:
    """Decide about a record that an old subtask holds behind an aligned watermark (``InputChange.belongs``)."""
    parallelism = operator.parallelism
    select = operator.input_keys[input_index] if operator.input_keys else None
    if exchange is Exchange.BROADCAST:
        return lambda record, index, number: index == 0  # all old subtasks hold the same
    if select is not None and not operator.keys_stay:
        return lambda record, index, number: (
            subtask_of(select(record), operator.max_parallelism, parallelism) == subtask
        )
    return lambda record, index, number: (index + number) % parallelism == subtask


def _redistributed(declaration: StateDeclaration, values: Sequence[Any], subtask: int, parallelism: int) -> Any:
    if declaration.redistribution_mode is RedistributionMode.IDENTICAL:
        return values[0]
    elements = [element for value in values for element in value]
    if isinstance(declaration, ListStateDeclaration) and declaration.strategy is RedistributionStrategy.UNION:
        return elements
    return elements[subtask::parallelism]


def _event_time(states: Sequence[Any], ended: Sequence[int]) -> tuple[Any, ...]:
    """``EventTimeOfInputs``: the least of the merged subtasks."""
    times = tuple(min(of_input) for of_input in zip(*(state[0] for state in states), strict=True))
    idle = set(states[0][1]).intersection(*(state[1] for state in states))
    return times, tuple(sorted(idle - set(ended))), tuple(ended), min(s[3] for s in states), all(s[4] for s in states)


def _sent_time(states: Sequence[Any]) -> tuple[Any, ...]:
    """``SentEventTime``: what all merged subtasks have sent."""
    idle, inputs_idle, greatest, uses_processing_time = zip(*states, strict=True)
    return all(idle), all(inputs_idle), min(greatest), all(uses_processing_time)


def _inputs(states: Sequence[Any], ended: Sequence[int]) -> tuple[Any, ...]:
    idle = set(states[0][1]).intersection(*(state[1] for state in states)) - set(ended)
    return list(ended), sorted(idle), all(state[2] for state in states)
