"""Faults of barriers."""

from __future__ import annotations

from typing import Any

from dsv2.runtime.exchange.barrier_rounds import BarrierRounds
from dsv2.runtime.exchange.frames import ChannelWriter
from dsv2.runtime.exchange.gate import InputGate
from dsv2.watermark.barrier_combiner import BarrierCombiner
from tests.proofs.mutations.mutation import Mutation, controls_first, nothing, wait_for_idle, without


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


BARRIERS = [
    Mutation("a barrier waits for idle channels", "barriers, inputs of 2 channels, no limit", "blocked",
     BarrierCombiner, "deactivate", wait_for_idle),
    Mutation("a barrier does not wait for the other input", "barriers, inputs of 1 and 1 channels, no limit", "part",
     BarrierCombiner, "following", _without_other_inputs),
    Mutation("a barrier releases channels that are at a greater id", "barriers, inputs of 2 channels, no limit",
     "blocked", BarrierCombiner, "_complete", _release_all),
    Mutation("the ids of a channel may decrease", "barriers, inputs of 2 channels, no limit", "order", BarrierCombiner,
     "update", _in_any_order),
    Mutation("late barriers are not counted", "barriers, inputs of 2 channels, 1 moves of the clock, then proceed",
     "late", BarrierRounds, "_late", nothing),
    Mutation("records before late barriers are not counted",
     "barriers, inputs of 2 channels, 1 moves of the clock, then proceed", "late", InputGate, "_count_behind", nothing),
    Mutation("a barrier waits for longer than its timeout",
     "barriers, inputs of 2 channels, 1 moves of the clock, then proceed", "limit", BarrierRounds, "on_time", nothing),
    Mutation("a barrier holds more records than it may", "barriers, inputs of 2 channels, 1 records, then proceed",
     "limit", BarrierRounds, "check_held", nothing),
    Mutation("blocked channels are not restored", "barriers, inputs of 2 channels, no limit", "restart",
     BarrierCombiner, "snapshot", without(2, ())),
    Mutation("held records are not counted after a restart", "barriers, inputs of 2 channels, 1 records, then proceed",
     "restart", BarrierRounds, "recount", nothing),
    Mutation("a barrier overtakes the records before it",
     "barriers, two operators, 2 subtasks of 1 channels, no limit, frames of 2", "part", ChannelWriter, "control",
     controls_first),
]  # fmt: skip
