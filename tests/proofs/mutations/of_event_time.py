"""Faults of event time whose channels and inputs become idle and active, or follow the clock."""

from __future__ import annotations

from typing import Any

from dsv2.runtime.exchange import gate
from dsv2.runtime.operator import input_activity
from dsv2.watermark.event_time import EventTimeCombiner, EventTimeOfInputs
from tests.proofs.mutations.mutation import Mutation

_THREE_CHANNELS = "event time, gate, 3 channels, 2 values"


def _wait_for_event_time(original: Any) -> Any:
    def activate(self: Any, channel: int) -> Any:
        last = self._last
        original(self, channel)
        self._last = last

    return activate


def _flush_by_the_slowest(original: Any) -> Any:
    def deactivate(self: Any, channel: int) -> Any:
        last, is_slowest = self._last, self._times[channel] == self._last
        moved = original(self, channel)
        if is_slowest or len(self._idle) + len(self._ended) < len(self._times):
            return moved
        self._last = last
        return None

    return deactivate


def _without_flush(original: Any) -> Any:
    def set_idle(self: Any, index: int, idle: bool) -> Any:
        current = self.current
        moved = original(self, index, idle)
        if len(self._idle) + len(self._ended) < len(self._times):
            return moved
        self.current = current
        return None

    return set_idle


def _by_status_alone(original: Any) -> Any:
    def all_idle(members: int, idle: set[int], ended: set[int], by_clock: set[int]) -> bool:
        return bool(idle) and len(idle) + len(ended) == members

    return all_idle


EVENT_TIMES = [
    Mutation("a channel that is active again has no effect until it sends event time, as in Flink 2.3", _THREE_CHANNELS,
     "progress", EventTimeCombiner, "activate", _wait_for_event_time),
    Mutation("event time depends on the channel that becomes idle last, as in Flink 2.3", _THREE_CHANNELS, "progress",
     EventTimeCombiner, "deactivate", _flush_by_the_slowest),
    Mutation("event time depends on the input that becomes idle last, as in Flink 2.3",
     "operator, inputs of 1 and 1 channels, event time, forward", "progress", EventTimeOfInputs, "set_idle",
     _without_flush),
    Mutation("a channel that follows the clock keeps an input active whose other channels are idle",
     "event time, gate, 2 channels, 2 values and the flag", "status", gate, "all_idle", _by_status_alone),
    Mutation("an input that follows the clock keeps an operator active whose other input is idle",
     "event time and flag, inputs of 1 and 1 channels", "model", input_activity, "all_idle", _by_status_alone),
]  # fmt: skip
