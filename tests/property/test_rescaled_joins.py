"""Interval joins whose parallelism changes, compared with one subtask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.testing import EndOfInput, StampedRecord, TwoInputNonBroadcastHarness
from tests.durations import ms
from tests.oracles.joins import Row
from tests.profiles import examples
from tests.property.joining import event_time, key_of, pair

any_join: Any = join  # each of its overloads accepts one type
KEYS = "abcde"
STEPS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(KEYS), st.integers(0, 20))
    | st.tuples(st.just(2), st.just(""), st.integers(0, 20)),
    max_size=20,
)


def subtasks(join_type: JoinType, parallelism: int, **options: Any) -> list[Any]:
    return [
        TwoInputNonBroadcastHarness(
            any_join(pair, JoinMode.interval(ms(-4), ms(6)), join_type),
            first_key=key_of,
            second_key=key_of,
            parallelism=parallelism,
            subtask=index,
            declarations=[EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION],
            **options,
        )
        for index in range(parallelism)
    ]


def send(harnesses: list[Any], step: tuple[int, str, int]) -> None:
    side, key, time = step
    if side == 2:
        for harness in harnesses:
            harness.first_input.push_all([event_time(time)])
            harness.second_input.push_all([event_time(time)])
        return
    owner = next(harness for harness in harnesses if harness.owns(key))
    stamped = StampedRecord(Row(key, 0, time), time)
    (owner.second_input if side else owner.first_input).push_all([stamped])


def joined(harnesses: list[Any]) -> Counter[Hashable]:
    return Counter(
        (element.record, element.timestamp)
        for harness in harnesses
        for element in harness.output.elements
        if isinstance(element, StampedRecord)
    )


@pytest.mark.parametrize("join_type", JoinType, ids=lambda join_type: join_type.value)
@examples(25)
@given(STEPS, STEPS, st.integers(1, 3), st.integers(1, 3))
def test_rows_wait_for_their_partners_wherever_they_are(
    join_type: JoinType, first: list[Any], second: list[Any], before: int, after: int
) -> None:
    steady, old = subtasks(join_type, 1), subtasks(join_type, before)
    for step in first:
        send(steady, step)
        send(old, step)
    new = subtasks(join_type, after, rescaled=[harness.snapshot() for harness in old])
    for step in second:
        send(steady, step)
        send(new, step)
        assert joined(steady) == joined(old) + joined(new)
    for harness in (*steady, *new):
        harness.first_input.push_all([EndOfInput()])
        harness.second_input.push_all([EndOfInput()])
    assert joined(steady) == joined(old) + joined(new)


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("join_type", [JoinType.INNER, JoinType.LEFT, JoinType.SEMI, JoinType.ANTI])
def test_one_pane_with_several_deadlines(join_type: JoinType, early: int) -> None:
    """One subtask has a row that no longer needs the pane when another one does."""
    steady, old = subtasks(join_type, 1), subtasks(join_type, 2)
    of_subtask = {next(n for n, harness in enumerate(old) if harness.owns(key)): key for key in KEYS}
    steps = [(0, of_subtask[early], 0), (0, of_subtask[1 - early], 9)]
    for step in steps:
        send(steady, step)
        send(old, step)
    new = subtasks(join_type, 1, rescaled=[harness.snapshot() for harness in old])
    for step in [(2, "", 7), (1, of_subtask[1 - early], 10), (2, "", 30)]:
        send(steady, step)
        send(new, step)
        assert joined(new) == joined(steady)
    assert joined(new)
