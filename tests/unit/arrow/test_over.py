"""Aggregates of the last records: what is kept, late records, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Count, Key, Lag, Last, Lead, Mean, Sum
from dsv2.arrow import frames
from dsv2.arrow.aggregate_columns import columns_of
from dsv2.errors import PlanError
from dsv2.state import StateTtl
from dsv2.testing import OneInputHarness
from tests.durations import ms


class Bid(NamedTuple):
    """Input."""

    user: str
    time: int
    price: float


class Result(NamedTuple):
    """Output."""

    user: str
    time: int
    bids: int
    mean: float


def harness(**frame: Any) -> Any:
    env = ExecutionEnvironment.get_instance("local")
    keyed = env.from_collection([Bid("", 0, 0.0)]).key_by(attrgetter("user"))
    over: Any = keyed.over(**frame).aggregate(Result, user=Key(), bids=Count(), mean=Mean("price"))
    return OneInputHarness(over._node.body, key=attrgetter("user"))


def push(one: Any, *times: int, user: str = "ada") -> None:
    for time in times:
        one.input.push(Bid(user, time, float(time)), timestamp=time)


def results(one: Any) -> list[tuple[int, int, float]]:
    found = [(result.time, result.bids, result.mean) for result in one.output.records]
    one.output.clear()
    return found


def test_records_are_emitted_when_event_time_has_reached_them() -> None:
    one = harness(rows=2)
    push(one, 20, 10, 30, 40)
    assert results(one) == []
    one.input.push_event_time(30)
    assert results(one) == [(10, 1, 10.0), (20, 2, 15.0), (30, 2, 25.0)]
    push(one, 30, 35)
    one.input.push_event_time(40)
    assert results(one) == [(35, 2, 32.5), (40, 2, 37.5)]
    assert one.progress.counters["late_records_dropped"] == 1


def test_range_is_forgotten() -> None:
    one = harness(range=ms(10))
    push(one, 20, 25)
    one.input.push_event_time(25)
    assert results(one) == [(20, 1, 20.0), (25, 2, 22.5)]
    push(one, 35)
    one.input.push_event_time(35)
    assert results(one) == [(35, 2, 30.0)]
    assert one.keys == ["ada"]
    one.input.push_event_time(46)
    assert one.keys == []


def test_rows_expire() -> None:
    one = harness(rows=3, ttl=StateTtl(timedelta(milliseconds=10)))
    push(one, 10)
    one.input.push_event_time(10)
    one.advance_clock(ms(9))
    push(one, 20)
    one.input.push_event_time(20)
    one.advance_clock(ms(11))
    push(one, 30)
    one.input.push_event_time(30)
    assert results(one) == [(10, 1, 10.0), (20, 2, 15.0), (30, 1, 30.0)]


def test_frames_are_aggregated_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_AT_ONCE", 4)
    values, low = pa.array([float(number) for number in range(9)]), np.maximum(np.arange(9) - 3, 0)
    sums = columns_of(Sum("value"), [values.type], values.type)
    found = frames.results_of_frames(sums, [values], low, np.arange(9) + 1).to_pylist()
    assert found == [float(sum(range(max(0, number - 3), number + 1))) for number in range(9)]


def test_large_sums_are_exact() -> None:
    values = pa.array([1 << 62, 1 << 61, -(1 << 62), None])
    sums = columns_of(Sum("value"), [values.type], values.type)
    found = frames.results_of_frames(sums, [values], np.array([0, 0, 3]), np.array([2, 3, 4]))
    assert found.to_pylist() == [3 << 61, 1 << 61, None]


class Between(NamedTuple):
    """A bid between two others."""

    user: str
    time: int
    before: float | None
    after: float = -1.0


def neighbours(rows: int | None, *, frame: Any = None, **parts: Any) -> Any:
    env = ExecutionEnvironment.get_instance("local")
    keyed = env.from_collection([Bid("", 0, 0.0)]).key_by(attrgetter("user"))
    over: Any = keyed.over(**(frame or {"rows": rows})).aggregate(Between, **parts)
    return OneInputHarness(over._node.body, key=attrgetter("user"))


def test_lag_is_kept_beyond_the_rows() -> None:
    one = neighbours(1, before=Lag("price", 2), after=Lag("price"))
    for time in (10, 20, 30):
        push(one, time)
        one.input.push_event_time(time)
    assert [record[1:] for record in one.output.records] == [(10, None, -1.0), (20, None, 10.0), (30, 10.0, 20.0)]
    assert one.output.timestamps == [10, 20, 30]


def test_results_with_lead_wait_for_the_record_after() -> None:
    one = neighbours(1, before=Lag("price"), after=Lead("price", 2))
    push(one, 20, 10)
    push(one, 15, user="ben")
    one.input.push_event_time(25)
    assert one.output.records == []
    push(one, 40, 30)
    one.input.push_event_time(35)
    one.input.push_event_time(40)
    assert [record[1:] for record in one.output.records] == [(10, None, 30.0), (20, 10.0, 40.0)]
    assert one.output.timestamps == [30, 40]
    one.output.clear()
    one.input.end()
    assert sorted(one.output.records) == [("ada", 30, 20.0, -1.0), ("ada", 40, 30.0, -1.0), ("ben", 15, None, -1.0)]
    assert {*one.output.timestamps} == {(1 << 63) - 1}


class Text(NamedTuple):
    """Another result."""

    user: str
    price: str


class Counted(NamedTuple):
    """A bid with the number of those in its range."""

    time: int
    bids: int
    after: float | None


def test_range_of_a_record_that_waits_is_kept() -> None:
    env = ExecutionEnvironment.get_instance("local")
    keyed = env.from_collection([Bid("", 0, 0.0)]).key_by(attrgetter("user"))
    over: Any = keyed.over(range=ms(10)).aggregate(Counted, bids=Count(), after=Lead("price"))
    one: Any = OneInputHarness(over._node.body, key=attrgetter("user"))
    push(one, 10, 15)
    one.input.push_event_time(30)
    push(one, 40)
    one.input.push_event_time(45)
    assert one.output.records == [Counted(10, 1, 15.0), Counted(15, 2, 40.0)]


def test_neighbours_outlive_their_range() -> None:
    frame = {"range": ms(10), "ttl": StateTtl(timedelta(milliseconds=100))}
    one = neighbours(None, frame=frame, before=Lag("price"), after=Lag("price", 2))
    push(one, 10, 11, 12)
    one.input.push_event_time(50)
    push(one, 60)
    one.input.push_event_time(60)
    assert [(found.before, found.after) for found in one.output.records] == [
        (None, -1.0),
        (10.0, -1.0),
        (11.0, 10.0),
        (12.0, 11.0),
    ]
    one.input.push_event_time(90)
    assert one.keys == ["ada"]
    one.advance_clock(ms(101))
    assert one.keys == []


@pytest.mark.parametrize(
    ("apply", "text"),
    [
        (lambda keyed: keyed.over(), "takes either rows or range"),
        (lambda keyed: keyed.over(rows=2, range=timedelta(1)), "takes either rows or range"),
        (lambda keyed: keyed.over(rows=0), "at least 1, not 0"),
        (
            lambda keyed: keyed.over(range=timedelta(1), ttl=timedelta(1)).aggregate(
                Result, bids=Count(), mean=Count()
            ),
            "need no ttl",
        ),
        (lambda keyed: keyed.over(rows=2).aggregate(str), "must be a NamedTuple class or a dataclass"),
        (lambda keyed: keyed.over(rows=2).aggregate(Result, bid=Count()), "Result has no field 'bid'"),
        (lambda keyed: keyed.over(rows=2).aggregate(Result, bids=Count()), "no field 'mean' of Result"),
        (lambda keyed: keyed.over(rows=2).aggregate(Text), "'price' of Text is string, and that of Bid is double"),
        (lambda keyed: keyed.over(rows=2).aggregate(Text, price=Sum("user")), "not a number"),
        (lambda keyed: keyed.over(rows=1).aggregate(Between, before=Lag("cost")), "Bid has no field 'cost', which Lag"),
        (lambda keyed: keyed.over(rows=1).aggregate(Between, before=Lag("user")), r"but Lag\('user'\) is str"),
        (lambda keyed: keyed.over(rows=1).aggregate(Text, price=Lead("user")), "must permit None or have a default"),
        (lambda keyed: keyed.aggregate(Text, user=Key(), price=Lag("user")), "value of another record. Call over"),
        (lambda keyed: keyed.over(rows=2).aggregate(Text, price=Last("cost")), "aggregates 'cost'"),
    ],
)
def test_what_is_refused(apply: Any, text: str) -> None:
    env = ExecutionEnvironment.get_instance("local")
    keyed = env.from_collection([Bid("", 0, 0.0)]).key_by(attrgetter("user"))
    with pytest.raises(PlanError, match=text):
        apply(keyed)
