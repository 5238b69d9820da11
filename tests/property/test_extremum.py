"""The extremum of channels against a comparison of all of them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from dsv2.watermark.extremum import Extremum
from tests.profiles import examples

Step: TypeAlias = tuple[Literal["put", "discard"], int, int]

_CHANNELS = st.integers(0, 19)
_STEPS = st.tuples(st.sampled_from(["put", "put", "put", "discard"]), _CHANNELS, st.integers(-5, 5))


@examples(150)
@given(st.booleans(), st.dictionaries(_CHANNELS, st.integers(-5, 5)), st.lists(st.tuples(_STEPS, st.booleans())))
def test_it_equals_a_comparison_of_all(greatest: bool, values: dict[int, int], steps: list[tuple[Step, bool]]) -> None:
    extremum = Extremum(greatest, values.items())
    for (what, channel, value), asks in steps:
        if what == "put":
            values[channel] = value
            extremum.put(channel, value)
        else:
            values.pop(channel, None)
            extremum.discard(channel)
        assert len(extremum) == len(values)
        if asks and values:
            assert extremum.value() == (max if greatest else min)(values.values())


def test_a_channel_that_stays_behind_does_not_fill_memory() -> None:
    extremum = Extremum(greatest=False, values=((channel, 0) for channel in range(20)))
    for time in range(10_000):
        extremum.put(1 + time % 19, time)
        assert extremum.value() == 0
    assert len(extremum._heap) <= 60
