"""A job that skips records gives the result of a job without them, traced or not, by request or by policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.sources import CollectionSource, IndexedSource
from tests.profiles import examples


class Event(NamedTuple):
    """An event of a key."""

    key: int
    time: int
    number: int


class Counted(OneInputStreamProcessFunction[Event, Any]):
    """Emits events with their number in the key."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def process_record(self, record: Event, output: Any, ctx: Any) -> None:
        self.counts[record.key] = self.counts.get(record.key, 0) + 1
        output.collect((record, self.counts[record.key]))


class Together(OneInputWindowStreamProcessFunction[Event, Any]):
    """Emits the events of a window."""

    def on_trigger(self, output: Any, ctx: Any, window_ctx: Any) -> None:
        output.collect((window_ctx.start_time, tuple(window_ctx.get_all_records())))


class Refusing(OneInputStreamProcessFunction[Event, Event]):
    """Fails for events with these numbers."""

    def __init__(self, numbers: set[int]) -> None:
        self.numbers = frozenset(numbers)

    def process_record(self, record: Event, output: Any, ctx: Any) -> None:
        output.collect(record)
        if record.number in self.numbers:
            raise ValueError


def key_of(event: Event) -> int:
    return event.key


def time_of(event: Event) -> int:
    return event.time


def results(
    events: list[Event],
    runtime: LocalRuntime,
    *,
    skips: set[int] | None = None,
    refused: set[int] | None = None,
    traced: bool = False,
) -> list[list[Any]]:
    """The records of two sinks. ``skips``: skipped by request. ``refused``: skipped by a policy."""
    env = ExecutionEnvironment.get_instance(runtime)
    env.set_parallelism(2)
    source: IndexedSource[Event] = CollectionSource(events)
    stream: Any = env.from_source(source).with_uid("in").with_parallelism(1)
    if refused is not None:
        stream = stream.process(Refusing(refused)).with_parallelism(1).with_error_policy(ErrorPolicy().skip())
    counted, windows = CollectSink[Any](), CollectSink[Any]()
    stream.key_by(key_of).process(Counted()).to_sink(counted)
    generator: Any = EventTimeExtension.new_watermark_generator_builder(time_of).per_event_watermark()
    timed = stream.process(generator.build_as_process_function()).with_parallelism(1)
    timed.key_by(key_of).window(WindowStrategy.tumbling(timedelta(milliseconds=4))).process(Together()).to_sink(windows)
    env.execute(skip_records={"in": [(0, number) for number in skips or ()]}, trace_records=traced)
    return [sorted(counted.results), sorted(windows.results)]


EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), min_size=1, max_size=30)


@examples(13)
@given(EVENTS, st.data(), st.integers(0, 9), st.lists(st.integers(1, 9), max_size=3), st.booleans(), st.booleans())
def test_results_are_those_of_the_other_records(
    drawn: list[tuple[int, int]], data: st.DataObject, seed: int, batches: list[int], traced: bool, fast: bool
) -> None:
    events = [Event(key, time, number) for number, (key, time) in enumerate(drawn)]
    bad = data.draw(st.sets(st.integers(0, len(events) - 1)))
    kept = [event for event in events if event.number not in bad]

    def runtime() -> LocalRuntime:
        return LocalRuntime(seed=seed, batches=batches, fast=fast)

    expected = results(kept, runtime())
    assert results(events, runtime(), skips=bad, traced=traced) == expected
    assert results(events, runtime(), refused=bad, traced=traced) == expected
