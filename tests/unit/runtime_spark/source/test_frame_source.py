"""The stream reader for collections and generators, driven as Spark drives it, but without Spark."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice, pairwise
from typing import Any, NamedTuple
from unittest.mock import Mock, call

import pytest
from pyspark.sql.types import StructType

from dsv2 import ExecutionEnvironment
from dsv2.base.clock import Clock, SystemClock
from dsv2.errors import IncompatibleCheckpointError, UserFunctionError
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import END, START, Control
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.sources.indexed_planner import DEFAULT_RECORDS_PER_BATCH
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource, DataGeneratorSource, IndexedSource
from runtime_spark.frames.failures import job_failure
from runtime_spark.frames.layout import REPORT_SLOT, Layout
from runtime_spark.frames.rows import ROW_SCHEMA
from runtime_spark.frames.worker import load_job, pack_job
from runtime_spark.platform.closures import from_bytes, to_bytes
from runtime_spark.source.feeds import IndexedFeed, StartFeed, TickFeed
from runtime_spark.source.frame_source import FramePartition, FrameStreamReader, OrderFeed
from runtime_spark.source.source_class import frame_source_class
from tests.support import one_input

_MOST_BATCHES = 50


class Read(NamedTuple):
    """Records that one subtask reads in one micro-batch."""

    records: list[Any]
    begins: bool
    ends: bool


class TestClock:
    """A clock that stands still, or advances by ``step`` at each reading."""

    __test__ = False

    def __init__(self, step: int = 0) -> None:
        self.now = 1_000_000
        self.step = step

    def now_ms(self) -> int:
        self.now += self.step
        return self.now

    def wait(self, duration: timedelta) -> None:
        self.now += duration // timedelta(milliseconds=1)


class Driver:
    """Drives a reader like Spark: requests offsets, logs them, and reads partitions in other processes."""

    def __init__(
        self,
        source: IndexedSource[Any],
        parallelism: int = 2,
        clock: Clock | None = None,
        receiver_parallelism: int | None = None,
        target_batch_ms: int | None = None,
    ) -> None:
        env = ExecutionEnvironment.get_instance("local")
        env.set_parallelism(parallelism)
        receiver = env.from_source(source).process(one_input()).with_parallelism(receiver_parallelism or parallelism)
        receiver.to_sink(CollectSink())
        plan = env.build_plan()
        packed = pack_job(plan, Layout.of(plan), TypeRegistry.of(plan))
        self._job = load_job(packed)
        self._slots = [self._job.layout.slots[1, subtask] for subtask in range(parallelism)]  # of the receiver
        feed, clock = IndexedFeed(source, target_batch_ms), clock or SystemClock()
        self.reader = FrameStreamReader(feed, clock, to_bytes((feed, clock)), packed, 0, None)
        self.offset = self.reader.initialOffset()
        self.log = [self.offset]

    def only_available(self) -> Driver:
        self.reader.prepareForTriggerAvailableNow()
        return self

    def offsets(self) -> Iterator[dict[str, int]]:
        """Yield the ends of micro-batches until there is no new data."""
        for _ in range(_MOST_BATCHES):
            start, self.offset = self.offset, self.reader.latestOffset(self.offset)
            if self.offset == start:
                return
            yield self.offset

    def decode(self, row: dict[str, Any]) -> tuple[Sequence[Any], list[Control]]:
        """Return the records and controls of a frame. A progress report has none."""
        if row["slot"] == REPORT_SLOT:
            return [], []
        batch, controls = decode_frame(self._job.codec(), row["payload"], "test")
        return batch.records, controls

    def batch(self) -> list[Read] | None:
        """Run one micro-batch and return its records by subtask, or None if there is no new data."""
        start = self.offset
        end = json.loads(json.dumps(self.reader.latestOffset(start)))
        if end == start:
            return None
        self.offset = end
        self.log.append(end)
        return self.repeat(start, end)

    def batches(self) -> list[list[Read]]:
        """Run micro-batches until there is no new data."""
        batches = list(islice(iter(self.batch, None), _MOST_BATCHES))
        assert len(batches) < _MOST_BATCHES, "the source does not come to its end"
        return batches

    def repeat(self, start: dict[str, int], end: dict[str, int]) -> list[Read]:
        partitions = self.reader.partitions(start, end)
        remote = from_bytes(to_bytes(self.reader))
        rows_by_slot: dict[int, list[dict[str, Any]]] = {slot: [] for slot in self._slots}
        for split in partitions:
            for batch in remote.read(from_bytes(to_bytes(split))):
                for row in batch.to_pylist():
                    rows_by_slot.setdefault(row["slot"], []).append(row)
        return [self._read(rows_by_slot[slot]) for slot in self._slots]

    def _read(self, rows: Iterable[dict[str, Any]]) -> Read:
        records: list[Any] = []
        kinds: list[int] = []
        for row in rows:
            of_frame, controls = self.decode(row)
            records += of_frame
            kinds += [kind for _, kind, *_ in controls]
        return Read(records, START in kinds, END in kinds)


def packed_job(parallelism: int = 1) -> bytes:
    """A job with one source, packed for the tasks."""
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(parallelism)
    env.from_source(numbers(3)).process(one_input()).to_sink(CollectSink())
    plan = env.build_plan()
    return pack_job(plan, Layout.of(plan), TypeRegistry.of(plan))


def test_data_source_reads_what_its_feed_plans() -> None:
    source = frame_source_class("words", IndexedFeed(numbers(3)), packed_job(), 0, SystemClock())({})
    assert (source.name(), source.schema()) == ("words", ROW_SCHEMA)
    reader: Any = source.streamReader(StructType())
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert end == {"position": 3, "ended": True}
    (portion,) = reader.partitions(start, end)
    (batch,) = reader.read(portion)
    assert sum(row["slot"] != REPORT_SLOT for row in batch.to_pylist()) == 1
    reader._planner = planner = Mock()
    reader.commit(end)
    reader.stop()
    assert planner.mock_calls == [call.commit(end), call.close()]


def test_orders_are_planned_by_the_feed_that_they_replace() -> None:
    feed, clock = Mock(), SystemClock()
    operator = load_job(packed_job()).plan.operators[0]
    assert OrderFeed(feed).planner(operator, clock) is feed.planner.return_value
    feed.planner.assert_called_once_with(operator, clock)


def test_portion_without_rows_yields_nothing() -> None:
    feed = IndexedFeed(numbers(3))
    reader = FrameStreamReader(feed, SystemClock(), to_bytes((feed, SystemClock())), packed_job(), 0, None)
    assert list(reader.read(FramePartition(None, ()))) == []


def test_job_over_a_streaming_dataframe_opens_its_channels_and_ends_none() -> None:
    packed, feed = packed_job(parallelism=2), StartFeed()
    reader = FrameStreamReader(feed, SystemClock(), to_bytes((feed, SystemClock())), packed, 0, None)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert end == {"position": 0}
    kinds = []
    for portion in reader.partitions(start, end):
        rows = [row for batch in reader.read(portion) for row in batch.to_pylist() if row["slot"] != REPORT_SLOT]
        kinds += [kind for row in rows for _, kind, *_ in decode_frame(load_job(packed).codec(), row["payload"], "")[1]]
    assert kinds == [START, START]
    assert reader.latestOffset(end) == end


def test_ticks_are_numbers_one_per_micro_batch() -> None:
    packed, feed = packed_job(), TickFeed(2)
    reader = FrameStreamReader(feed, SystemClock(), to_bytes((feed, SystemClock())), packed, 0, None)
    offset, ticks = reader.initialOffset(), []
    while (end := reader.latestOffset(offset)) != offset:
        (portion,) = reader.partitions(offset, end)
        ticks += [row["seq"] for batch in reader.read(portion) for row in batch.to_pylist()]
        offset = end
    assert ticks == [0, 1]


def numbers(count: int | None = None, **options: Any) -> DataGeneratorSource[int]:
    return DataGeneratorSource(lambda index: index, count=count, **options)


@pytest.mark.parametrize("source", [numbers(10, records_per_batch=4), CollectionSource(range(10), records_per_batch=4)])
def test_records_are_distributed_over_subtasks(source: IndexedSource[int]) -> None:
    driver = Driver(source, parallelism=3)
    assert driver.batches() == [
        [Read([0, 3], True, False), Read([1], True, False), Read([2], True, False)],
        [Read([6], False, False), Read([4, 7], False, False), Read([5], False, False)],
        [Read([9], False, True), Read([], False, True), Read([8], False, True)],
    ]
    assert driver.log == [*({"position": position} for position in (-1, 4, 8)), {"position": 10, "ended": True}]


@pytest.mark.parametrize("source", [numbers(10, records_per_batch=4), CollectionSource(range(10), records_per_batch=4)])
def test_same_offsets_give_the_same_frames(source: IndexedSource[int]) -> None:
    def frames(reader: FrameStreamReader) -> list[Any]:
        splits = reader.partitions({"position": 4}, {"position": 8})
        rows = (row for split in splits for batch in reader.read(split) for row in batch.to_pylist())
        # Reports have times, and a new reader wakes all subtasks.
        return [row for row in rows if row["slot"] != REPORT_SLOT and driver.decode(row) != ([], [])]

    driver = Driver(source)
    driver.batches()
    again = Driver(source)  # has read nothing yet, like a reader after a restart
    assert frames(driver.reader) == frames(again.reader) != []


def test_distribution_does_not_depend_on_the_micro_batches() -> None:
    def distributed(records_per_batch: int) -> dict[tuple[int, int], list[int]]:
        """Records by slot and channel, where two source subtasks send to three."""
        driver = Driver(numbers(20, records_per_batch=records_per_batch), receiver_parallelism=3)
        received: dict[tuple[int, int], list[int]] = defaultdict(list)
        for start, end in pairwise([driver.log[0], *driver.offsets()]):
            for split in driver.reader.partitions(start, end):
                for batch in driver.reader.read(split):
                    for row in batch.to_pylist():
                        received[row["slot"], row["channel"]] += driver.decode(row)[0]
        return {place: records for place, records in received.items() if place[0] != REPORT_SLOT}

    at_once = distributed(20)
    assert len(at_once) == 6
    assert distributed(3) == distributed(7) == at_once


@pytest.mark.parametrize("source", [numbers(0), CollectionSource([])])
def test_empty_source_begins_and_ends(source: IndexedSource[int]) -> None:
    assert Driver(source).batches() == [[Read([], True, True)] * 2]


def test_subtasks_without_records_begin_and_end() -> None:
    assert Driver(numbers(1), parallelism=3).batches() == [[Read([0], True, True), *[Read([], True, True)] * 2]]


def test_source_read_to_its_end_has_no_new_data() -> None:
    driver = Driver(numbers(3))
    assert len(driver.batches()) == 1
    after_restart = Driver(numbers(3))
    after_restart.offset = driver.offset
    assert after_restart.batch() is None
    assert after_restart.reader.partitions(driver.offset, driver.offset) == []
    shorter = Driver(numbers(2))  # than when it was read
    shorter.offset = driver.offset
    assert shorter.batch() is None


def test_source_continues_after_a_restart() -> None:
    driver = Driver(numbers(5, records_per_batch=2), parallelism=1)
    assert driver.batch() == [Read([0, 1], True, False)]
    restarted = Driver(numbers(5, records_per_batch=2), parallelism=1)
    restarted.offset = driver.offset
    assert restarted.batches() == [[Read([2, 3], False, False)], [Read([4], False, True)]]


def test_spark_that_passes_no_start_continues_after_the_last_offset() -> None:
    driver = Driver(numbers(5, records_per_batch=2))
    reader = driver.reader
    assert [reader.latestOffset()["position"] for _ in range(4)] == [2, 4, 5, 5]
    restarted = Driver(numbers(5, records_per_batch=2)).reader
    assert restarted.partitions({"position": 2}, {"position": 2}) == []  # what it has read last
    assert restarted.latestOffset()["position"] == 4
    repeated = Driver(numbers(5, records_per_batch=2)).reader
    repeated.partitions({"position": 2}, {"position": 4})
    assert repeated.latestOffset() == {"position": 5, "ended": True}


def test_restarted_job_wakes_every_subtask_once() -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(2)
    source = numbers(9)
    see = one_input(process_record=lambda record, output, ctx: None)
    env.from_source(source).process(see).shuffle().process(see).with_parallelism(3).to_sink(CollectSink())
    plan = env.build_plan()
    packed = pack_job(plan, Layout.of(plan), TypeRegistry.of(plan))
    job, feed = load_job(packed), IndexedFeed(source)

    def woken(reader: FrameStreamReader, start: int, end: int) -> list[int]:
        *portions, last = reader.partitions({"position": start}, {"position": end})
        assert isinstance(last, FramePartition)
        if len(portions) < 2:
            return []
        rows = [row for batch in reader.read(last) for row in batch.to_pylist()]
        assert all(decode_frame(job.codec(), row["payload"], "it") == (RecordBatch([]), []) for row in rows)
        return sorted(row["slot"] for row in rows)

    def reader() -> FrameStreamReader:
        return FrameStreamReader(feed, SystemClock(), to_bytes((feed, SystemClock())), packed, 0, None)

    first, second = reader(), reader()
    assert woken(first, -1, 4) == woken(first, 4, 6) == []
    slots = sorted(slot for slot, (operator, _) in job.layout.addresses.items() if operator in plan.chains)
    assert len(slots) == 5
    assert woken(second, 4, 6) == woken(second, 4, 6) == slots  # requested twice for one micro-batch
    assert woken(second, 6, 9) == []


def test_default_limit_is_a_million_records() -> None:
    driver = Driver(numbers(DEFAULT_RECORDS_PER_BATCH + 1), parallelism=1)
    first, second = driver.batches()
    assert [len(first[0].records), len(second[0].records)] == [1_000_000, 1]


def test_unbounded_source_never_ends() -> None:
    driver = Driver(numbers(records_per_batch=2), parallelism=1)
    assert [driver.batch() for _ in range(3)] == [
        [Read([0, 1], True, False)], [Read([2, 3], False, False)], [Read([4, 5], False, False)],
    ]  # fmt: skip


def test_micro_batches_grow_to_the_target_duration() -> None:
    clock = TestClock()
    driver = Driver(numbers(records_per_batch=700), parallelism=1, clock=clock, target_batch_ms=1_000)
    sizes = []
    for took in (10, 10, 10, 10, 4_000, 1_000, 1_000):
        sizes.append(sum(len(read.records) for read in driver.batch() or ()))
        clock.now += took
    # The source's own limit is reached first. The adaptive limit stays the same from then on.
    assert sizes == [100, 200, 400, 700, 700, 700, 700]


# --- Records per second -----------------------------------------------------------------------------------------------


def test_records_per_second_counts_from_the_first_request() -> None:
    clock = TestClock()
    driver = Driver(numbers(7, records_per_second=2), parallelism=1, clock=clock)
    clock.now += 60_000  # before the first request
    assert driver.batch() == [Read([], True, False)]
    assert driver.batch() is None
    clock.now += 499
    assert driver.batch() is None
    clock.now += 1
    assert driver.batch() == [Read([0], False, False)]
    clock.now += 1_700  # 2.2 s since the start: 4 records
    assert driver.batch() == [Read([1, 2, 3], False, False)]
    clock.now += 60_000
    assert driver.batch() == [Read([4, 5, 6], False, True)]
    assert driver.batch() is None


def test_both_limits_apply() -> None:
    clock = TestClock()
    driver = Driver(numbers(100, records_per_second=10, records_per_batch=3), parallelism=1, clock=clock)
    driver.batch()
    clock.now += 500
    assert [driver.batch(), driver.batch(), driver.batch()] == [
        [Read([0, 1, 2], False, False)], [Read([3, 4], False, False)], None,
    ]  # fmt: skip


def test_records_per_second_restarts_at_the_offset() -> None:
    clock = TestClock()
    restarted = Driver(numbers(100, records_per_second=10), parallelism=1, clock=clock)
    restarted.offset = {"position": 50}
    assert restarted.batch() is None
    clock.now += 200
    assert restarted.batch() == [Read([50, 51], False, False)]


# --- Trigger.available_now --------------------------------------------------------------------------------------------


def test_available_now_reads_all_of_a_bounded_source() -> None:
    driver = Driver(numbers(5, records_per_batch=2), parallelism=1).only_available()
    assert [batch[0].records for batch in driver.batches()] == [[0, 1], [2, 3], [4]]


def test_available_now_keeps_the_pace_of_a_bounded_source() -> None:
    # Spark ends the query when a request returns no new offset, so the reader waits.
    driver = Driver(numbers(5, records_per_second=2), parallelism=1, clock=TestClock(step=100)).only_available()
    batches = driver.batches()
    assert [record for batch in batches for record in batch[0].records] == [0, 1, 2, 3, 4]
    assert len(batches) == 5
    assert [(batch[0].begins, batch[0].ends) for batch in batches] == [(n == 0, n == 4) for n in range(5)]


def test_available_now_reads_one_batch_of_an_unbounded_source() -> None:
    driver = Driver(numbers(records_per_batch=2), parallelism=1).only_available()
    assert driver.batches() == [[Read([0, 1], True, False)]]
    clock = TestClock()
    driver = Driver(numbers(records_per_second=10), parallelism=1, clock=clock).only_available()
    assert driver.batches() == [[Read([], True, False)]]
    clock.now += 10_000
    assert driver.batch() is None


# --- Where records are created ----------------------------------------------------------------------------------------


def broken(index: int) -> int:
    return 10 // (2 - index)


ENDED = {"position": 4, "ended": True}


@pytest.mark.parametrize("count", [4, None])
def test_ended_job_refuses_a_longer_source(count: int | None) -> None:
    again = Driver(numbers(4))
    again.offset = ENDED
    assert again.batch() is None
    longer = Driver(numbers(count and count + 1))
    longer.offset = ENDED
    with pytest.raises(Exception, match="ended after 4 records but") as raised:
        longer.batch()
    failure = job_failure(raised.value, "job")
    assert isinstance(failure, IncompatibleCheckpointError)
    assert f"defined at {__file__}:" in str(failure)
    assert "another checkpoint_location" in str(failure)


def test_source_shorter_than_its_offset_is_refused() -> None:
    shorter = Driver(numbers(3))
    shorter.offset = {"position": 4}
    with pytest.raises(Exception, match="now holds 3 records, but 4 were read before"):
        shorter.batch()


def test_end_is_sent_even_without_further_records() -> None:
    """The job was stopped, and its source was cut at that point."""
    cut = Driver(numbers(4), parallelism=2)
    cut.offset = {"position": 4}
    assert cut.batch() == [Read([], False, True), Read([], False, True)]
    assert cut.batch() is None


def test_longer_source_continues_if_it_has_not_ended() -> None:
    longer = Driver(numbers(6), parallelism=1)
    longer.offset = {"position": 4}
    assert longer.batch() == [Read([4, 5], False, True)]


def test_generator_failure_in_a_task_names_the_source() -> None:
    driver = Driver(DataGeneratorSource(broken, count=4))
    splits = driver.reader.partitions(driver.offset, {"position": 4})  # in the driver process
    list(driver.reader.read(splits[1]))
    with pytest.raises(Exception, match="ZeroDivisionError") as raised:
        list(driver.reader.read(splits[0]))
    failure = job_failure(raised.value, "job")
    assert isinstance(failure, UserFunctionError)
    assert failure.operator.startswith("Source (uid 'DataGeneratorSource-")
    assert (failure.callback, failure.subtask) == ("read", 0)
    assert failure.location.startswith(f"{__file__}:")
    assert "in broken" in failure.traceback_text


def test_elements_are_sent_with_their_split_only() -> None:
    large = "x" * 1_000_000
    driver = Driver(CollectionSource([large, "a", "b", "c"], records_per_batch=2), parallelism=2)
    assert len(pickle.dumps(driver.reader)) < 10_000
    first = driver.reader.partitions({"position": -1}, {"position": 2})
    second = driver.reader.partitions({"position": 2}, {"position": 4})
    assert [len(pickle.dumps(split)) > 1_000_000 for split in (*first, *second)] == [True, False]


def test_rows_made_on_the_driver_share_a_task_up_to_its_size() -> None:
    def tasks(text: str) -> int:
        driver = Driver(CollectionSource([text] * 8), parallelism=8)
        return len(driver.reader.partitions({"position": -1}, {"position": 8}))

    assert (tasks("x"), tasks("x" * 400_000), tasks("x" * 2_000_000)) == (1, 3, 8)
