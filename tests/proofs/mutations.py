"""Faults for the code: each is a mistake that somebody could make, and that the explorer must find."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pytest

from dsv2.runtime.exchange import gate
from dsv2.runtime.exchange.barrier_rounds import BarrierRounds
from dsv2.runtime.exchange.frames import WATERMARK, ChannelWriter, Control
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.operator.input_watermarks import InputWatermarks
from dsv2.runtime.operator.operator_task import OperatorTask
from dsv2.runtime.operator.time_sender import TimeSender
from dsv2.watermark.barrier_combiner import BarrierCombiner
from dsv2.watermark.combiner import AlignedWatermarkCombiner, WatermarkCombiner
from dsv2.watermark.event_time import EventTimeCombiner, EventTimeOfInputs
from dsv2.watermark.expiring import ExpiringCombiner

__all__ = ("MUTATIONS", "Mutation")


class Mutation(NamedTuple):
    """A fault.

    Attributes:
        fault: What is wrong.
        case: The name of the case that finds it.
        invariant: The invariant that does not hold. Unless it is the model, it is found without the model.
        owner: The class or module that is changed.
        attribute: The name of what is replaced there.
        make: Returns the replacement, given the original.
    """

    fault: str
    case: str
    invariant: str
    owner: Any
    attribute: str
    make: Callable[[Any], Any]

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        """Break the code."""
        original = self.owner.__dict__[self.attribute]
        patch.setattr(self.owner, self.attribute, self.make(original))


def _nothing(original: Any) -> Any:
    return lambda *args: None


def _let_records_pass(original: Any) -> Any:
    def align(self: Any, channel: int, identifier: str, value: Any, rest: Any) -> None:
        self._deliver(identifier, self._combiner(identifier).update(channel, value))
        self._accept(channel, rest)

    return align


def _let_records_overtake(original: Any) -> Any:
    def accept(self: Any, channel: int, piece: Any) -> None:
        batch, controls, gone = piece
        original(self, channel, (batch, [(gone + len(batch), *control[1:]) for control in controls], gone))

    return accept


def _idle_only_for_the_input(original: Any) -> Any:
    def set_idle(self: Any, channel: int, idle: bool) -> None:
        (self._idle_channels.add if idle else self._idle_channels.discard)(channel)
        self._report_idle()

    return set_idle


def _deliver_always(original: Any) -> Any:
    def changed(self: Any, combined: Any) -> Any:
        self._last = combined
        return combined

    return changed


def _keep_values_of_ended(original: Any) -> Any:
    def end(self: Any, channel: int) -> Any:
        return self._combine()

    return end


def _forget_the_ended(original: Any) -> Any:
    def end(self: Any, channel: int) -> Any:
        self._pending.discard(channel)
        return original(self, channel)

    return end


def _end_without_status(original: Any) -> Any:
    def end(self: Any, channel: int) -> None:
        report_idle, self._report_idle = self._report_idle, lambda: None
        original(self, channel)
        self._report_idle = report_idle

    return end


def _forget_uncounted(original: Any) -> Any:
    def deactivate(self: Any, channel: int) -> Any:
        self._pending.discard(channel)
        return original(self, channel)

    return deactivate


def _deliver_the_last_to_arrive(original: Any) -> Any:
    def update(self: Any, channel: int, value: Any) -> Any:
        combined = original(self, channel, value)
        return None if combined is None else value

    return update


def _wait_for_idle(original: Any) -> Any:
    def deactivate(self: Any, channel: int) -> Any:
        return None

    return deactivate


def _any_time(original: Any) -> Any:
    def moved(self: Any, time: int) -> Any:
        if time == self._last:
            return None
        self._last = time
        return time

    return moved


def _without(number: int, empty: Any) -> Callable[[Any], Any]:
    """A snapshot without one of its parts."""

    def make(original: Any) -> Any:
        def snapshot(self: Any) -> tuple[Any, ...]:
            state = original(self)
            return (*state[:number], empty, *state[number + 1 :])

        return snapshot

    return make


def _without_part(name: str, empty: Any) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def snapshot(self: Any) -> dict[str, Any]:
            return {**original(self), name: empty}

        return snapshot

    return make


def _controls_first(original: Any) -> Any:
    def control(self: Any, kind: int, identifier: str, value: Any) -> None:
        original(self, kind, identifier, value)
        self.controls = [(0, *control[1:]) for control in self.controls]

    return control


def _only_the_last(original: Any) -> Any:
    def effective(self: Any, channel: int, values: Sequence[Any]) -> Iterable[Any]:
        yield values[-1]

    return effective


def _run_across_controls(original: Any) -> Any:
    def end_of_run(controls: list[Control], index: int) -> int:
        end, (_, kind, identifier, _) = index + 1, controls[index]
        while end < len(controls) and kind == WATERMARK and controls[end][1:3] == (kind, identifier):
            end += 1
        return end

    return end_of_run


def _release_in_disorder(original: Any) -> Any:
    def release(self: Any, identifier: str) -> None:
        original(self, identifier)
        self._released = deque(reversed(self._released))

    return release


def _end_of_the_first_input(original: Any) -> Any:
    def all_ended(self: Any) -> bool:
        return bool(self._ended_inputs)

    return all_ended


def _ignore_idle_inputs(original: Any) -> Any:
    def set_idle(self: Any, index: int, idle: bool) -> Any:
        return None

    return set_idle


def _without_other_inputs(original: Any) -> Any:
    def following(self: Any) -> Any:
        return None if self._missing else self.proceed()

    return following


def _in_any_order(original: Any) -> Any:
    def update(self: Any, channel: int, value: Any) -> Any:
        self._last.pop(channel, None)
        return original(self, channel, value)

    return update


def _release_all(original: Any) -> Any:
    def complete(self: Any, value: Any) -> None:
        self._pending = dict.fromkeys(self._pending, value)
        original(self, value)

    return complete


def _expire_early(original: Any) -> Any:
    def init(self: Any, inner: Any, lifetime_ms: int, now: Any) -> None:
        original(self, inner, lifetime_ms // 2, now)

    return init


def _first_deadline(original: Any) -> Any:
    def update(self: Any, channel: int, value: Any) -> Any:
        deadline = self._deadlines.get(channel)
        combined = original(self, channel, value)
        if deadline is not None:
            self._deadlines[channel] = deadline
        return combined

    return update


def _settle_the_ended(original: Any) -> Any:
    def settle(self: Any) -> None:
        original(self)
        self._report_idle()

    return settle


MUTATIONS = [
    Mutation(
        "channels that block each other are not noticed",
        "gate, 2 channels, MAX (aligned) and AND (aligned)",
        "crossing",
        InputGate,
        "_check_crossing",
        _nothing,
    ),
    Mutation(
        "an input does not become idle when its last active channel ends",
        "gate, 2 channels, MAX (wait for none)",
        "status",
        InputGate,
        "_end",
        _end_without_status,
    ),
    Mutation(
        "the value of a channel that ends is lost",
        "gate, 2 channels, MAX (wait for all)",
        "lost",
        WatermarkCombiner,
        "end",
        _forget_the_ended,
    ),
    Mutation(
        "records pass an aligned watermark",
        "gate, 2 channels, MIN (aligned)",
        "records",
        InputGate,
        "_align",
        _let_records_pass,
    ),
    Mutation(
        "records overtake the watermarks of their frame",
        "gate, 2 channels, MIN (wait for none), frames of 2",
        "progress",
        InputGate,
        "_accept",
        _let_records_overtake,
    ),
    Mutation(
        "a round does not release its channels",
        "gate, 2 channels, MIN (aligned)",
        "records",
        InputGate,
        "release",
        _nothing,
    ),
    Mutation(
        "released frames of a channel change places",
        "gate, 2 channels, MIN (aligned)",
        "records",
        InputGate,
        "release",
        _release_in_disorder,
    ),
    Mutation(
        "an idle channel is waited for",
        "gate, 2 channels, MIN (wait for all)",
        "progress",
        InputGate,
        "_set_idle",
        _idle_only_for_the_input,
    ),
    Mutation(
        "a round waits for idle channels",
        "gate, 2 channels, MAX (aligned)",
        "blocked",
        AlignedWatermarkCombiner,
        "deactivate",
        _wait_for_idle,
    ),
    Mutation(
        "an unchanged value is delivered",
        "gate, 2 channels, MAX (wait for none)",
        "change",
        WatermarkCombiner,
        "_changed",
        _deliver_always,
    ),
    Mutation(
        "an ended channel keeps its value, as in Flink",
        "gate, 2 channels, MIN (wait for none)",
        "progress",
        WatermarkCombiner,
        "end",
        _keep_values_of_ended,
    ),
    Mutation(
        "the value of a channel that becomes idle is lost",
        "gate, 2 channels, MAX (wait for all)",
        "lost",
        WatermarkCombiner,
        "deactivate",
        _forget_uncounted,
    ),
    Mutation(
        "a round delivers the value that arrived last, as in Flink",
        "gate, 2 channels, AND (aligned)",
        "round",
        AlignedWatermarkCombiner,
        "update",
        _deliver_the_last_to_arrive,
    ),
    Mutation(
        "event time decreases",
        "gate, 2 channels, event time",
        "event time",
        EventTimeCombiner,
        "_moved",
        _any_time,
    ),
    Mutation(
        "the values that were not combined are not restored",
        "gate, 2 channels, MAX (wait for all)",
        "restart",
        WatermarkCombiner,
        "snapshot",
        _without(2, ()),
    ),
    Mutation(
        "held elements are not restored",
        "gate, 2 channels, MIN (aligned)",
        "restart",
        InputGate,
        "snapshot",
        _without(5, {}),
    ),
    Mutation(
        "the combination of the inputs is not restored",
        "operator, inputs of 1 and 1 channels, MIN (wait for all, across inputs), forward",
        "restart",
        OperatorTask,
        "snapshot",
        _without_part("across_inputs", {}),
    ),
    Mutation(
        "values of one frame are skipped although they change the combination",
        "gate, 2 channels, MAX (wait for none), frames of 2",
        "model",
        WatermarkCombiner,
        "effective",
        _only_the_last,
    ),
    Mutation(
        "values of one frame are combined before the records between them",
        "gate, 2 channels, MAX (wait for none), frames of 3",
        "cut",
        gate,
        "_end_of_run",
        _run_across_controls,
    ),
    Mutation(
        "watermarks overtake the records of their frame",
        "two operators, 2 subtasks of 1 channels, MIN (wait for none), frames of 2",
        "cut",
        ChannelWriter,
        "control",
        _controls_first,
    ),
    Mutation(
        "the values of an idle input hold back the other one",
        "operator, inputs of 1 and 1 channels, MIN (wait for all, across inputs), forward",
        "model",
        InputWatermarks,
        "set_idle",
        _nothing,
    ),
    Mutation(
        "the operator ends with its first input",
        "operator, inputs of 1 and 1 channels, MIN (wait for none), forward",
        "model",
        OperatorTask,
        "_all_inputs_ended",
        _end_of_the_first_input,
    ),
    Mutation(
        "an input that becomes idle holds event time back, as in Flink",
        "operator, inputs of 1 and 1 channels, event time, forward",
        "model",
        EventTimeOfInputs,
        "set_idle",
        _ignore_idle_inputs,
    ),
    Mutation(
        "an operator does not say that it is idle",
        "two operators, 2 subtasks of 1 channels, event time",
        "model",
        TimeSender,
        "forward_status",
        _nothing,
    ),
    Mutation(
        "a barrier waits for idle channels",
        "barriers, inputs of 2 channels, no limit",
        "blocked",
        BarrierCombiner,
        "deactivate",
        _wait_for_idle,
    ),
    Mutation(
        "a barrier does not wait for the other input",
        "barriers, inputs of 1 and 1 channels, no limit",
        "part",
        BarrierCombiner,
        "following",
        _without_other_inputs,
    ),
    Mutation(
        "a barrier releases channels that are at a greater id",
        "barriers, inputs of 2 channels, no limit",
        "blocked",
        BarrierCombiner,
        "_complete",
        _release_all,
    ),
    Mutation(
        "the ids of a channel may decrease",
        "barriers, inputs of 2 channels, no limit",
        "order",
        BarrierCombiner,
        "update",
        _in_any_order,
    ),
    Mutation(
        "late barriers are not counted",
        "barriers, inputs of 2 channels, 1 moves of the clock, then proceed",
        "late",
        BarrierRounds,
        "_late",
        _nothing,
    ),
    Mutation(
        "records before late barriers are not counted",
        "barriers, inputs of 2 channels, 1 moves of the clock, then proceed",
        "late",
        InputGate,
        "_count_behind",
        _nothing,
    ),
    Mutation(
        "a barrier waits for longer than its timeout",
        "barriers, inputs of 2 channels, 1 moves of the clock, then proceed",
        "limit",
        BarrierRounds,
        "on_time",
        _nothing,
    ),
    Mutation(
        "a barrier holds more records than it may",
        "barriers, inputs of 2 channels, 1 records, then proceed",
        "limit",
        BarrierRounds,
        "check_held",
        _nothing,
    ),
    Mutation(
        "blocked channels are not restored",
        "barriers, inputs of 2 channels, no limit",
        "restart",
        BarrierCombiner,
        "snapshot",
        _without(2, ()),
    ),
    Mutation(
        "held records are not counted after a restart",
        "barriers, inputs of 2 channels, 1 records, then proceed",
        "restart",
        BarrierRounds,
        "recount",
        _nothing,
    ),
    Mutation(
        "values do not expire",
        "expiring, inputs of 2 channels, MAX (wait for none)",
        "progress",
        ExpiringCombiner,
        "expire",
        _nothing,
    ),
    Mutation(
        "values expire too early",
        "expiring, inputs of 2 channels, MAX (wait for none)",
        "live",
        ExpiringCombiner,
        "__init__",
        _expire_early,
    ),
    Mutation(
        "an equal value does not begin its time again",
        "expiring, inputs of 2 channels, MAX (wait for none)",
        "live",
        ExpiringCombiner,
        "update",
        _first_deadline,
    ),
    Mutation(
        "an equal value is not passed on",
        "expiring, inputs of 1 and 1 channels, MAX (wait for all, across inputs)",
        "model",
        ExpiringCombiner,
        "refresh",
        _nothing,
    ),
    Mutation(
        "deadlines are not restored",
        "expiring, inputs of 2 channels, MAX (wait for none)",
        "restart",
        ExpiringCombiner,
        "snapshot",
        _without(1, ()),
    ),
    Mutation(
        "an input that ended while idle is active after a restart",
        "operator, inputs of 1 and 1 channels, MIN (wait for all, across inputs), forward",
        "restart",
        InputGate,
        "settle",
        _settle_the_ended,
    ),
]
