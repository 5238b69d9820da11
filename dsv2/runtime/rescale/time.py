"""Event time and statuses of an operator whose subtasks are merged.

All new subtasks have the same: the least that any old subtask had, among those that have not ended. So none is ahead of
what the keys that it gets have seen, and what receivers have derived from the old subtasks (see ``gates``) is what each
new subtask has sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.channel_rules import CombinerRules, State, rules_of
from dsv2.watermark.event_time import LONG_MIN


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
