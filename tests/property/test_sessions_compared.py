"""Aggregates of sessions on columns and record by record: late records, merging sessions, and restarts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import narwhals as nw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Count, Key, Last, Max, Mean, Min, Sum, WindowEnd, WindowStart
from dsv2.arrow.sessions import SessionColumns
from dsv2.errors import UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.testing import ManualClock, Stop, TestSource
from tests.conformance.functions import Stamped
from tests.durations import ms
from tests.profiles import examples
from tests.strategies import long_lists


class Event(NamedTuple):
    """A record."""

    user: str
    day: int
    time: int
    amount: int
    size: int | None
    text: str | None
    on: date
    gap: int  # ms


class Session(NamedTuple):
    """Its aggregates."""

    user: str
    day: int
    start: int
    end: int
    events: int
    sizes: int
    amount: int
    size: int | None
    mean: float
    mean_size: float | None
    least: int | None
    text: str | None
    latest: date
    last: int
    chosen: int


AGGREGATES: dict[str, Any] = {
    "user": Key(0), "day": Key(1), "start": WindowStart(), "end": WindowEnd(), "events": Count(),
    "sizes": Count("size"), "amount": Sum("amount"), "size": Sum("size"), "mean": Mean("amount"),
    "mean_size": Mean("size"), "least": Min("size"), "text": Max("text"), "latest": Max("on"), "last": Last("amount"),
    "chosen": Count(filter=nw.col("amount") > 0),
}  # fmt: skip

EVENTS = long_lists(
    st.builds(
        Event,
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.integers(-20, 60),
        st.integers(-5, 5),
        st.none() | st.integers(0, 3),
        st.none() | st.sampled_from(["x", "", "é"]),
        st.sampled_from([date(2020, 1, 1), date(2021, 1, 1)]),
        st.integers(1, 12),
    ),
    max_size=60,
)
Gap = timedelta | Callable[[Event], int]
OWN = attrgetter("gap")
GAPS: st.SearchStrategy[Gap] = st.sampled_from([1, 4, 10]).map(ms) | st.just(OWN)
BATCHES = st.sampled_from([1, 3, 20, 100])


def key_of(event: Event) -> tuple[str, int]:
    return event.user, event.day


def run(
    items: list[Any], gap: Gap, key: Callable[[Event], Any], wait: int, batch: int, start: Path | None = None
) -> tuple[list[Any], Any, Any]:
    """Return the results of each key in order, the job, and the function."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock(), checks=False))
    sink = CollectSink[Any]()
    times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time")).per_event_watermark()
    generator = times.with_max_out_of_order_time(timedelta(milliseconds=wait)).build_as_process_function()
    source: Any = env.from_source(TestSource[Any](items), "in").with_uid("in").with_parallelism(1)
    timed = source.process(generator).with_uid("times").with_parallelism(1)
    windows = timed.key_by(key, version=1).window(WindowStrategy.session(gap))
    found = windows.aggregate(Session, Event, **AGGREGATES).with_uid("f").with_parallelism(2)
    function = found._node.body
    found.process(Stamped()).with_uid("stamps").with_parallelism(2).to_sink(sink).with_uid("out")
    job = env.execute_async("sessions", savepoint=start)
    job.await_termination()
    return sorted(sink.results, key=lambda result: result[0][:2]), job, function


def late(job: Any) -> int:
    return sum(one.counters.get("late_records_dropped", 0) for one in job.progress.operators.values())


@examples(20)
@given(EVENTS, GAPS, st.sampled_from([0, 10, 90]), BATCHES)
def test_columns_have_the_results_of_single_records(events: list[Event], gap: Gap, wait: int, batch: int) -> None:
    of_columns, job, function = run(events, gap, attrgetter("user", "day"), wait, batch)
    assert isinstance(function, SessionColumns)
    of_records, job_of_records, function = run(events, gap, key_of, wait, batch)
    assert not isinstance(function, SessionColumns)
    assert of_columns == of_records
    assert late(job) == late(job_of_records)


@examples(5)
@given(EVENTS, GAPS, st.floats(0, 1), st.sampled_from([ms(1), ms(4), OWN]))
def test_savepoint_continues(events: list[Event], gap: Gap, share: float, gap_after: Gap) -> None:
    """Also with another gap: sessions that are open keep their ends."""
    stop, key = int(share * len(events)), attrgetter("user", "day")
    items = [*events[:stop], Stop(), *events[stop:]]
    found = []
    for selector in (key, key_of):
        with TemporaryDirectory() as folder:
            first, job, _ = run(items, gap, selector, 10, 5)
            job.savepoint(Path(folder, "savepoint"))
            second, _, _ = run(events, gap_after, selector, 10, 5, Path(folder, "savepoint"))
        found.append((first, second))
    assert found[0] == found[1]


def test_wrong_gap_of_a_column() -> None:
    event = Event("a", 0, 1, 0, None, None, date(2020, 1, 1), 0)
    with pytest.raises(UserFunctionError, match="at least 1 ms, but 'gap' has others"):
        run([event], OWN, attrgetter("user", "day"), 0, 1)
