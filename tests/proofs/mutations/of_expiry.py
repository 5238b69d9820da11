"""Faults of watermarks that expire."""

from __future__ import annotations

from typing import Any

from dsv2.watermark.expiry import ExpiringCombiner
from tests.proofs.mutations.mutation import Mutation, nothing, without


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


EXPIRY = [
    Mutation("values do not expire", "expiring, inputs of 2 channels, MAX (wait for none)", "progress",
     ExpiringCombiner, "expire", nothing),
    Mutation("values expire too early", "expiring, inputs of 2 channels, MAX (wait for none)", "live", ExpiringCombiner,
     "__init__", _expire_early),
    Mutation("an equal value does not begin its time again", "expiring, inputs of 2 channels, MAX (wait for none)",
     "live", ExpiringCombiner, "update", _first_deadline),
    Mutation("an equal value is not passed on",
     "expiring, inputs of 1 and 1 channels, MAX (wait for all, across inputs)", "model", ExpiringCombiner, "refresh",
     nothing),
    Mutation("deadlines are not restored", "expiring, inputs of 2 channels, MAX (wait for none)", "restart",
     ExpiringCombiner, "snapshot", without(1, ())),
]  # fmt: skip
