"""Unbounded sources on the local runtime with ``available_now``: the job reads the data that exists at its start."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, JobStatus, NonPartitionedContext, Trigger
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.sources import HybridSource, Portion, Source
from dsv2.testing import ManualClock
from tests.durations import ms
from tests.spans import Item, Span, Spans, everything, number_of

ENDS = {"a": 9, "b": 4, "c": 0}


class Ending(OneInputStreamProcessFunction[Any, Any]):
    """Forwards records and emits a record at the end of input."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)

    def end_input(self, ctx: NonPartitionedContext[Any]) -> None:
        ctx.apply_to_all_partitions(lambda output, ctx: output.collect("end"))


def run(*sources: Source[Any, Any, Any], parallelism: int = 2, watermarks: Any = None, **options: Any) -> list[Any]:
    """Return the output of the sources, each followed by a function that emits a record at the end of input."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(**options))
    env.set_parallelism(parallelism)
    sinks = [CollectSink[Any]() for _ in sources]
    for source, sink in zip(sources, sinks, strict=True):
        env.from_source(source, watermarks=watermarks).process(Ending()).with_parallelism(1).to_sink(sink)
    job = env.execute_async(trigger=Trigger.available_now())
    job.await_termination()
    assert job.status is JobStatus.FINISHED
    return [record for sink in sinks for record in sink.results]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("batches", "limit"), [((), None), ((1,), None), ((3, 1), 2)])
def test_available_data_is_read_and_input_does_not_end(batches: tuple[int, ...], limit: int | None, fast: bool) -> None:
    found = run(Spans(ENDS, bounded=False, limit=limit), batches=batches, fast=fast)
    assert sorted(found) == everything(ENDS)


def test_bounded_source_is_read_to_its_end() -> None:
    class Slow(Spans):
        """Has nothing to read at first."""

        looks = 0

        def refresh(self) -> None:
            self.looks += 1

        def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
            return super().advance(split, limit) if self.looks > 9 else None

    found = run(Spans({"a": 3}, bounded=False), Slow({"b": 2}), batches=(2,))
    assert found == [*everything({"a": 3, "b": 2}), "end"]


def test_collection_is_read_to_its_end() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=(1,)))
    sink = CollectSink[Any]()
    env.from_source(Spans({"a": 1}, bounded=False)).to_sink(CollectSink())
    env.from_collection(range(5)).process(Ending()).to_sink(sink)
    env.execute(trigger=Trigger.available_now())
    assert sink.results == [0, 1, 2, 3, 4, "end"]


class Looking(Spans):
    """Discovers its ends in ``refresh``. By the time it is read, there is more."""

    def refresh(self) -> None:
        self.seen = dict(self.ends)

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        self.ends[split.name] += 1
        stop = min(split.position + 1, self.seen[split.name])
        return Portion(Span(split.name, stop, split.end)) if stop > split.position else None


def test_later_data_is_not_read() -> None:
    assert run(Looking({"a": 3}, bounded=False), parallelism=1) == everything({"a": 3})


def test_splits_that_wait_are_available(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_text(f"{number}\n")
    found = run(FilesSource(tmp_path, text_lines(int), files_per_batch=1, discovery_interval=ms(10**9)))
    assert found == [0, 1, 2, 3, 4]


def test_next_source_of_a_hybrid_is_available() -> None:
    found = run(HybridSource([Spans({"a": 5}), Spans({"b": 3}, bounded=False)]), batches=(1,), parallelism=1)
    assert found == [Item("a", number) for number in range(5)] + [Item("b", number) for number in range(3)]


@pytest.mark.parametrize("fast", [False, True])
def test_paused_splits_are_read_without_endless_waiting(fast: bool) -> None:
    strategy = EventTimeExtension.new_watermark_generator_builder(number_of)
    aligned = strategy.build_as_watermark_strategy().with_watermark_alignment("g", timedelta(milliseconds=2))
    clock = ManualClock(step=ms(300))
    options: dict[str, Any] = {"batches": (1,), "fast": fast, "clock": clock, "watermarks": aligned}
    both = {"a": 30, "b": 29}
    assert sorted(run(Spans(both, bounded=False), **options)) == everything(both)
    # The long source gets ahead, and the short one has no data that would let it continue.
    for bounded in (False, True):
        found = run(Spans({"long": 30}, bounded=bounded), Spans({"short": 3}, bounded=False), **options)
        assert [item for item in found if item.span == "short"] == everything({"short": 3})
        assert len(found) < 15
