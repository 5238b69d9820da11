"""Values that expire against a model that keeps everything that was sent, and looks at the clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsv2.watermark import new_builder
from dsv2.watermark.combiner import new_combiner
from tests.profiles import examples

CHANNELS = 3
Event = tuple[str, int, int]
"""``send`` with a channel and a value, ``wait`` with a number of seconds, or ``restart``."""

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, CHANNELS - 1), st.integers(0, 4)),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 3)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=20,
)
FUNCTIONS: dict[str, Callable[..., int]] = {"max": max, "min": min, "sum": sum}


class Model:
    """Returns what is delivered, and what must be sent again so that it lives on further down."""

    def __init__(self, function: Callable[..., int], wait: bool, lifetime: int) -> None:
        self.function = function
        self.wait = wait
        self.lifetime = lifetime
        self.sent: dict[int, tuple[int, int]] = {}  # the value and its time
        self.last: int | None = None
        self.now = 0
        self.passed_on_at: int | None = None

    def combined(self) -> int | None:
        values = [value for value, time in self.sent.values() if time + self.lifetime > self.now]
        return self.function(values) if len(values) >= (CHANNELS if self.wait else 1) else None

    def has_values(self) -> bool:
        return any(time + self.lifetime > self.now for _, time in self.sent.values())

    def deliver(self) -> int | None:
        if not self.has_values():
            self.last = None
        combined = self.combined()
        if combined is None or combined == self.last:
            return None
        self.last, self.passed_on_at = combined, self.now
        return combined

    def send(self, channel: int, value: int) -> tuple[int | None, int | None]:
        self.sent[channel] = value, self.now
        delivered = self.deliver()
        again = self.combined() if delivered is None and self.passed_on_at != self.now else None
        if again is not None:
            self.passed_on_at = self.now
        return delivered, again


@examples(150)
@given(EVENTS, st.sampled_from(sorted(FUNCTIONS)), st.booleans(), st.integers(1, 3))
def test_values_count_for_their_time(events: list[Event], function: str, wait: bool, lifetime: int) -> None:
    builder = new_builder("w").type_long().combine_wait_for_all_channels(wait)
    builder = getattr(builder, f"combine_function_{function}")().expire_after(timedelta(seconds=lifetime))
    declaration, model = builder.build(), Model(FUNCTIONS[function], wait, 1_000 * lifetime)
    combiner: Any = new_combiner(declaration, CHANNELS, (), lambda: model.now)
    for what, channel, value in events:
        if what == "send":
            found = combiner.update(channel, value), combiner.refresh()
            assert found == model.send(channel, value)
        elif what == "wait":
            for _ in range(value):  # deadlines are met one after the other
                model.now += 1_000
                assert combiner.expire(model.now) == model.deliver()
            deadline = combiner.next_deadline()
            assert (deadline is not None) == model.has_values()
            assert deadline is None or deadline > model.now
        else:
            state = combiner.snapshot()
            combiner = new_combiner(declaration, CHANNELS, (), lambda: model.now)
            combiner.restore(state)
