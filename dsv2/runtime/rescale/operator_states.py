"""The states of the subtasks of one operator in another program. The keyed store is not part of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from dsv2.errors import IncompatibleCheckpointError
from dsv2.graph import Operator
from dsv2.runtime.exchange.barrier_rounds import BLOCKED
from dsv2.runtime.exchange.control_log import WATERMARK
from dsv2.runtime.operator.input_callbacks import reacts_to_end
from dsv2.runtime.report.metrics import merged_metrics
from dsv2.runtime.rescale.change import OperatorChange, Senders
from dsv2.runtime.rescale.fields import rescaled_fields
from dsv2.runtime.rescale.gates import OfKey, new_gate, rescaled_gate
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.migrations import split_name
from dsv2.state import ListStateDeclaration, RedistributionMode, RedistributionStrategy, StateDeclaration
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.channel_rules import CombinerRules, State, rules_of
from dsv2.watermark.event_time import EVENT_TIME, LONG_MIN, USE_PROCESSING_TIME


def across_inputs(
    states: Sequence[Mapping[str, Any]],
    inputs: int,
    new_inputs: Collection[int],
    declarations: Mapping[str, WatermarkDeclaration],
) -> dict[str, State]:
    """Return the combiners over the inputs of an operator by identifier.

    Args:
        states: ``OperatorTask.snapshot`` of the old subtasks.
        inputs: The number of inputs.
        new_inputs: The inputs with other senders, which begin again.
        declarations: The watermark declarations by identifier.
    """
    kept = {index: index for index in range(inputs) if index not in new_inputs}
    merged = {}
    for identifier in sorted({identifier for state in states for identifier in state["across_inputs"]}):
        if identifier in declarations:
            rules = rules_of(identifier, declarations)
            merged[identifier] = rules.joined_inputs(
                [rules.renumbered(_across_inputs_of(state, identifier, rules), kept) for state in states], sorted(kept)
            )
    return merged


def _across_inputs_of(state: Mapping[str, Any], identifier: str, rules: CombinerRules) -> State:
    known: State | None = state["across_inputs"].get(identifier)
    idle = [index for index, gate in enumerate(state["gates"]) if gate[4]]
    return known if known is not None else rules.new(len(state["gates"]), idle, state["inputs"][0])


def event_time(states: Sequence[tuple[Any, ...]], inputs: int, new_inputs: Collection[int]) -> tuple[Any, ...]:
    """Return the event time of the operator (``EventTimeOfInputs.snapshot``) from that of old subtasks."""
    kept = [index for index in range(inputs) if index not in new_inputs]
    times = [min(times[index] for times, *_ in states) if index in kept else LONG_MIN for index in range(inputs)]
    ended = tuple(index for index in kept if all(index in state[2] for state in states))
    idle = tuple(index for index in kept if all(index in (*state[1], *state[2]) for state in states))
    idle = tuple(index for index in idle if index not in ended)
    return tuple(times), idle, ended, min(state[3] for state in states), all(state[4] for state in states)


def sent_time(states: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the event time that a subtask has sent (``SentEventTime.snapshot``) from that of old subtasks."""
    idle = all(state[0] for state in states)
    appears_idle = all(state[0] or state[1] for state in states)
    inputs_idle = all(state[1] for state in states) if idle else appears_idle
    return idle, inputs_idle, min(state[2] for state in states), all(state[3] for state in states)


def input_status(states: Sequence[Mapping[str, Any]], inputs: int, new_inputs: Collection[int]) -> tuple[Any, ...]:
    """Return ended inputs, idle inputs, and whether the operator has sent that they are idle, from old subtasks."""
    kept = [index for index in range(inputs) if index not in new_inputs]
    old = [state["inputs"] for state in states]
    ended = [index for index in kept if all(index in state[0] for state in old)]
    idle = [index for index in kept if index not in ended and all(index in (*state[0], *state[1]) for state in old)]
    declared, inputs_idle, *_ = sent_time([state["sent_time"] for state in states])
    return ended, idle, (inputs_idle and not declared) or all(state[2] for state in old)


OperatorState: TypeAlias = dict[str, Any]
"""``OperatorTask.snapshot()`` without "store"."""


def owner_of(operator: Operator, key: Any, subtask: int = 0) -> int:
    """Return the subtask of ``operator`` that gets what belongs to ``key``.

    Args:
        operator: The operator in the new program.
        key: The key.
        subtask: The old subtask that has it. It only counts if each subtask is one partition: a function with state of
            keys on a stream without keys.
    """
    if operator.keys_stay:
        return subtask % operator.parallelism
    return subtask_of(key, operator.max_parallelism, operator.parallelism)


def rescaled_states(
    operator: Operator,
    change: OperatorChange,
    states: Sequence[OperatorState],
    declarations: Mapping[str, WatermarkDeclaration],
    codec: Codec,
    subtasks: Iterable[int] | None = None,
) -> list[OperatorState]:
    """Return the states of new subtasks of ``operator``.

    Args:
        operator: The operator in the new program.
        change: What has changed around it.
        states: The states of its old subtasks, ordered by index.
        declarations: The watermark declarations of the new program by identifier.
        codec: Decodes and encodes fields and states of the subtask.
        subtasks: The indices of the new subtasks (default: all, in order).

    Raises:
        IncompatibleCheckpointError: Something cannot be carried: the fields of the function differ between the
            subtasks, the parallelism exceeds the maximum, an input that has ended or whose channels are blocked has
            another sender, or a watermark is no longer declared while channels are blocked.
    """
    _check(operator, change, states)
    wanted = range(operator.parallelism) if subtasks is None else subtasks
    undeclared = _undeclared(operator, states, declarations)
    if change.keeps_subtasks and not undeclared:
        return [states[index] for index in wanted]
    data = _data(operator, change, states, codec)
    times = _times(change, states, declarations)
    return [
        {**data[index], **times, "gates": _gates(operator, change, states, index, declarations)} for index in wanted
    ]


def _undeclared(
    operator: Operator, states: Sequence[OperatorState], declarations: Mapping[str, WatermarkDeclaration]
) -> set[str]:
    """The watermarks in the gates that the new program no longer declares."""
    gates = [gate for state in states for gate in state["gates"]]
    held = {identifier for gate in gates for blocked in gate[5].values() for identifier in _held_watermarks(*blocked)}
    known = {EVENT_TIME, USE_PROCESSING_TIME, BLOCKED, *declarations}
    undeclared = {identifier for gate in gates for identifier in gate[1]}.union(held) - known
    if held and undeclared:
        raise IncompatibleCheckpointError(
            f"{operator}, defined at {operator.location}, holds back records of blocked channels, and the program no "
            f"longer declares {', '.join(map(repr, sorted(undeclared)))}. Declare it, or take the savepoint when no "
            f"channel is blocked."
        )
    return undeclared


def _held_watermarks(identifier: str, pieces: Iterable[tuple[Any, ...]]) -> Iterable[str]:
    """The watermark that blocks a channel, and those that wait behind it. The gate may not have combined these yet."""
    yield identifier
    for _, controls, *_ in pieces:
        yield from (waiting for _, kind, waiting, _ in controls if kind == WATERMARK)


def _check(operator: Operator, change: OperatorChange, states: Sequence[OperatorState]) -> None:
    if not 1 <= operator.parallelism <= operator.max_parallelism:
        raise IncompatibleCheckpointError(
            f"{operator} cannot have {operator.parallelism} subtasks. Its max parallelism is "
            f"{operator.max_parallelism}."
        )
    for number, one in enumerate(change.inputs):
        if one.senders is Senders.NEW and number < change.inputs_before:
            _check_replaced(operator, number, states)


def _check_replaced(operator: Operator, number: int, states: Sequence[OperatorState]) -> None:
    """Refuse another sender for an input that its former sender has not left as if it had never been there."""
    where = f"{operator}, defined at {operator.location},"
    has_ended = any(number in state["inputs"][0] for state in states)
    all_closed = all(closed for _, closed in (state["lifecycle"] for state in states))
    if has_ended and (all_closed or reacts_to_end(operator.function, operator.kind, number)):
        raise IncompatibleCheckpointError(
            f"{where} has received the end of its input {number} and reacted to it, so that input cannot have another "
            f"sender. Give it and the operators after it other uids, so that they begin again."
        )
    held_for = {identifier for state in states for identifier, _ in state["gates"][number][5].values()}
    if held_for == {BLOCKED}:
        raise IncompatibleCheckpointError(
            f"{where} waits for its broadcast side, and holds back what its input {number} has sent, so that input "
            f"cannot have another sender. Keep its sender, or take the savepoint when the wait is over."
        )
    if held_for:
        raise IncompatibleCheckpointError(
            f"{where} holds back records of its input {number} behind an aligned watermark, which another sender would "
            f"never complete. Keep its sender, or take the savepoint when no channel is blocked."
        )


def _data(
    operator: Operator, change: OperatorChange, states: Sequence[OperatorState], codec: Codec
) -> list[OperatorState]:
    """Return the parts that belong to keys or records: function fields, states of the subtask and counts."""
    if change.keeps_data:
        names = ("fields", "subtask_state", "records_in", "counters", "metrics")
        return [{name: state[name] for name in names if name in state} for state in states]
    counters = sorted({name for state in states for name in state["counters"]})
    total = {name: sum(state["counters"].get(name, 0) for state in states) for name in counters}
    records = sum(state["records_in"] for state in states)
    fields = rescaled_fields(operator, [state["fields"] for state in states], codec)
    of_subtask = subtask_states(operator, [state["subtask_state"] for state in states], codec)
    metrics = merged_metrics([state.get("metrics", {}) for state in states], operator.parallelism)
    return [
        {
            "fields": fields[index],
            "subtask_state": of_subtask[index],
            "records_in": 0 if index else records,
            "counters": dict.fromkeys(counters, 0) if index else total,
            "metrics": metrics[index],
        }
        for index in range(operator.parallelism)
    ]


def _times(
    change: OperatorChange, states: Sequence[OperatorState], declarations: Mapping[str, WatermarkDeclaration]
) -> OperatorState:
    """Return the times and watermarks that the operator has reached and sent, the same for all new subtasks."""
    new_inputs = [index for index, one in enumerate(change.inputs) if one.senders is Senders.NEW]
    opened, closed = zip(*(state["lifecycle"] for state in states), strict=True)
    live = [state for state in states if not state["lifecycle"][1]] or states
    seen: dict[str, list[Any]] = {}
    for state in states:
        for identifier, value in state["watermarks"].items():
            seen.setdefault(identifier, []).append(value)
    count = len(change.inputs)
    return {
        "watermarks": {
            identifier: _least(values, declarations.get(identifier)) for identifier, values in sorted(seen.items())
        },
        "across_inputs": across_inputs(states, count, new_inputs, declarations),
        "event_time": event_time([state["event_time"] for state in live], count, new_inputs),
        "sent_time": sent_time([state["sent_time"] for state in live]),
        "inputs": input_status(live, count, new_inputs),
        "lifecycle": (any(opened), all(closed)),
    }


def _least(values: Sequence[Any], declaration: WatermarkDeclaration | None) -> Any:
    """The value that was delivered last, of those that several subtasks have seen."""
    if declaration is not None:
        return declaration.value_type.least(values)
    return min(values) if isinstance(values[0], int) else values[0]


def _gates(
    operator: Operator,
    change: OperatorChange,
    states: Sequence[OperatorState],
    subtask: int,
    declarations: Mapping[str, WatermarkDeclaration],
) -> list[Any]:
    gates = []
    per_key = [identifier for identifier, one in declarations.items() if one.scope.key_type is not None]
    for number, one in enumerate(change.inputs):
        if one.senders is Senders.NEW:
            gates.append(new_gate(one.channels))
        else:
            old = [state["gates"][number] for state in states]
            of_keys = () if operator.input_keys[number] is None else per_key
            route = partial(_route, operator, number)
            gates.append(rescaled_gate(old, one, subtask, declarations, route, of_keys))
    return gates


def _route(operator: Operator, number: int, record: Any, subtask: int) -> int:
    """The new subtask for a record that the old subtask ``subtask`` holds at the input ``number``."""
    select = operator.input_keys[number]
    if isinstance(record, OfKey):
        return owner_of(operator, record.key, subtask)
    return subtask % operator.parallelism if select is None else owner_of(operator, select(record), subtask)


def subtask_states(operator: Operator, old: Sequence[Mapping[str, bytes]], codec: Codec) -> list[dict[str, bytes]]:
    """Return the states of the new subtasks, by stored name, from those of the old ones."""
    declared = {declaration.name: declaration for declaration in operator.function.uses_states()}
    new: list[dict[str, bytes]] = [{} for _ in range(operator.parallelism)]
    for stored in sorted({stored for state in old for stored in state}):
        declaration = declared.get(split_name(stored)[0])
        if declaration is None:
            continue
        values = [codec.loads(state[stored], f"{declaration} of {operator}") for state in old if stored in state]
        for value, of_subtask in zip(_redistributed(declaration, values, len(new)), new, strict=True):
            of_subtask[stored] = codec.dumps(value)
    return new


def _redistributed(declaration: StateDeclaration, values: Sequence[Any], parallelism: int) -> list[Any]:
    if declaration.redistribution_mode is RedistributionMode.IDENTICAL:
        return [values[0]] * parallelism
    elements = [element for value in values for element in value]
    if isinstance(declaration, ListStateDeclaration) and declaration.strategy is RedistributionStrategy.UNION:
        return [elements] * parallelism
    return [elements[index::parallelism] for index in range(parallelism)]
