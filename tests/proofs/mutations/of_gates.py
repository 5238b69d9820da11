"""Faults of gates and of the combination of their channels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from dsv2.runtime.exchange import gate
from dsv2.runtime.exchange.control_log import WATERMARK, Control
from dsv2.runtime.exchange.gate import InputGate
from dsv2.watermark.arrival_combiner import Deliveries, WatermarkCombiner
from dsv2.watermark.combiner import AlignedWatermarkCombiner
from dsv2.watermark.event_time import EventTimeCombiner
from tests.proofs.mutations.mutation import Mutation, nothing, wait_for_idle, without


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
    def pass_on(self: Any, combined: Any, *, arrived: bool = False) -> Any:
        self.last = combined
        return combined

    return pass_on


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


def _time_of_the_channel(original: Any) -> Any:
    def changed(self: Any, channel: int) -> Any:
        return None if original(self, channel) is None else self._times[channel]

    return changed


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


def _lose_later_frames(original: Any) -> Any:
    def receive(self: Any, channel: int, batch: Any, controls: Any) -> None:
        self.received = getattr(self, "received", 0) + 1
        if self.received < 9:
            original(self, channel, batch, controls)

    return receive


GATES = [
    Mutation("channels that block each other are not noticed", "gate, 2 channels, MAX (aligned) and AND (aligned)",
     "crossing", InputGate, "_check_crossing", nothing),
    Mutation("an input does not become idle when its last active channel ends", "gate, 2 channels, MAX (wait for none)",
     "status", InputGate, "_end", _end_without_status),
    Mutation("the value of a channel that ends is lost", "gate, 2 channels, MAX (wait for all)", "lost",
     WatermarkCombiner, "end", _forget_the_ended),
    Mutation("records pass an aligned watermark", "gate, 2 channels, MIN (aligned)", "records", InputGate, "_align",
     _let_records_pass),
    Mutation("records overtake the watermarks of their frame", "gate, 2 channels, MIN (wait for none), frames of 2",
     "progress", InputGate, "_accept", _let_records_overtake),
    Mutation("a round does not release its channels", "gate, 2 channels, MIN (aligned)", "records", InputGate,
     "release", nothing),
    Mutation("released frames of a channel change places", "gate, 2 channels, MIN (aligned)", "records", InputGate,
     "release", _release_in_disorder),
    Mutation("an idle channel is waited for", "gate, 2 channels, MIN (wait for all)", "progress", InputGate,
     "_set_idle", _idle_only_for_the_input),
    Mutation("a round waits for idle channels", "gate, 2 channels, MAX (aligned)", "blocked", AlignedWatermarkCombiner,
     "deactivate", wait_for_idle),
    Mutation("an unchanged value is delivered", "gate, 2 channels, MAX (wait for none)", "change", Deliveries,
     "pass_on", _deliver_always),
    Mutation("an ended channel keeps its value, as in Flink", "gate, 2 channels, MIN (wait for none)", "progress",
     WatermarkCombiner, "end", _keep_values_of_ended),
    Mutation("the value of a channel that becomes idle is lost", "gate, 2 channels, MAX (wait for all)", "lost",
     WatermarkCombiner, "deactivate", _forget_uncounted),
    Mutation("a round delivers the value that arrived last, as in Flink", "gate, 2 channels, AND (aligned)", "round",
     AlignedWatermarkCombiner, "update", _deliver_the_last_to_arrive),
    Mutation("event time is that of the channel that arrives last", "gate, 2 channels, event time", "event time",
     EventTimeCombiner, "_changed", _time_of_the_channel),
    Mutation("the values that were not combined are not restored", "gate, 2 channels, MAX (wait for all)", "restart",
     WatermarkCombiner, "snapshot", without(2, ())),
    Mutation("held elements are not restored", "gate, 2 channels, MIN (aligned)", "restart", InputGate, "snapshot",
     without(5, {})),
    Mutation("values of one frame are skipped although they change the combination",
     "gate, 2 channels, MAX (wait for none), frames of 2", "model", WatermarkCombiner, "effective", _only_the_last),
    Mutation("values of one frame are combined before the records between them",
     "gate, 2 channels, MAX (wait for none), frames of 3", "cut", gate, "_end_of_run", _run_across_controls),
    Mutation("code that has run for long loses frames", "gate, 2 channels, MAX (wait for none)", "restart", InputGate,
     "receive", _lose_later_frames),
]  # fmt: skip
