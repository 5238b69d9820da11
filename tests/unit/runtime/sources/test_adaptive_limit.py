"""Target durations of micro-batches, tested with a model of a job and its own clock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import Trigger
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.errors import ConfigurationError
from dsv2.graph import Operator
from dsv2.runtime.sources.adaptive_limit import AdaptiveLimit
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, SourceOffset, orders
from dsv2.sources import HybridSource, Source
from dsv2.testing import ManualClock
from runtime_spark.frames.rows import Row
from runtime_spark.frames.worker import WorkerJob
from runtime_spark.source.feeds import CountingFeed
from runtime_spark.source.source_read import IndexRange as IndexedSplit
from tests.durations import ms
from tests.profiles import examples
from tests.spans import Spans
from tests.unit.runtime.sources.test_source_coordinator import operator_of

LEAST = 100
ENDLESS = 10**12
GROWING_IN_SPITE_OF_OVERHEAD = [int(LEAST * 2 ** (step / 2)) for step in range(6)]
"""Expected sizes if every micro-batch takes as long as the first one and the target is twice that."""


class Job:
    """Runs micro-batches that take ``overhead_ms`` plus the time for their records."""

    def __init__(self, target_ms: int, records_per_ms: float, overhead_ms: int = 300) -> None:
        self.clock = ManualClock()
        self.target_ms = target_ms
        self.limit = AdaptiveLimit(target_ms, self.clock)
        self.records_per_ms = records_per_ms
        self.overhead_ms = overhead_ms

    def run(self, available: int = ENDLESS, *, times: float = 1, least: int = LEAST) -> tuple[int, int]:
        """Run one micro-batch, return its number of records and its duration, multiplied by ``times``."""
        self.limit.measure()
        allowed = self.limit.of(least)
        size = min(allowed, available)
        self.limit.begin(size, least)
        took = int((self.overhead_ms + size / self.records_per_ms) * times)
        self.clock.advance(ms(took))
        return size, took

    def restart(self) -> None:
        multiple = self.limit.multiple
        self.limit = AdaptiveLimit(self.target_ms, self.clock)
        self.limit.resume(multiple)

    def several(self, count: int, **options: Any) -> list[tuple[int, int]]:
        return [self.run(**options) for _ in range(count)]

    def durations(self, count: int, **options: Any) -> list[int]:
        """Durations of those of ``count`` micro-batches that do not have the minimum size, which are few."""
        took = [took for size, took in self.several(count, **options) if size > LEAST]
        assert len(took) >= 0.98 * count - 1
        return took


def near(target: int, took: Iterable[int], share: float = 0.1) -> bool:
    return all(abs(ms - target) <= share * target for ms in took)


@pytest.mark.parametrize("target_ms", [1_000, 3_000, 30_000])
@pytest.mark.parametrize("records_per_ms", [10, 300, 2_000])
def test_backlog_grows_to_the_target_duration(target_ms: int, records_per_ms: int) -> None:
    job = Job(target_ms, records_per_ms)
    growing = job.several(25)
    sizes = [size for size, _ in growing]
    assert sizes[0] == LEAST
    assert all(before < size <= 2 * before + 1 for before, size in pairwise(sizes[:5]))
    assert max(took for _, took in growing) <= 1.1 * target_ms
    assert near(target_ms, job.durations(100))


def test_settles_after_20_micro_batches() -> None:
    """100 records must grow to 700,000: about 13 doublings, plus a few steps to converge."""
    assert near(1_000, (took for _, took in Job(1_000, 1_000).several(30)[20:]))


def test_one_slow_micro_batch_of_the_minimum_size_is_ignored() -> None:
    job = Job(1_000, 100, overhead_ms=250)
    job.several(30)
    while job.run()[0] > LEAST:
        pass
    job.several(64)
    assert job.run(times=30)[0] == LEAST
    assert near(1_000, job.durations(60))


@pytest.mark.parametrize("factor", [0.1, 0.5, 3, 20])
def test_follows_a_change_of_speed(factor: float) -> None:
    job = Job(2_000, 1_000)
    job.several(30)
    job.records_per_ms *= factor
    job.several(12)
    assert near(2_000, job.durations(50))


def test_trickle_is_never_held_back() -> None:
    job = Job(1_000, 100)
    assert {job.run(available=90) for _ in range(100)} == {(90, 300)}
    assert job.run() == (LEAST, 301)


def test_limit_of_a_backlog_survives_a_trickle() -> None:
    job = Job(1_000, 100)
    backlog = job.several(30)[-1][0]
    job.several(20, available=5)
    assert job.run(available=backlog)[0] == backlog


def test_hiccup_halves_the_limit_only_briefly() -> None:
    job = Job(1_000, 100)
    before = job.several(30)[-1][0]
    job.run(times=20)
    assert job.run()[0] == pytest.approx(before / 2, rel=0.01)
    job.several(4)
    assert job.run()[0] == pytest.approx(before, rel=0.1)


def test_slow_first_micro_batch_is_ignored() -> None:
    job = Job(1_000, 1_000)
    job.run(times=30)
    assert near(1_000, (took for _, took in job.several(30)[21:]))


@examples(25)
@given(st.data())
def test_load_tests(data: st.DataObject) -> None:
    """After a change, and whatever was before, micro-batches soon take about as long as they should."""
    noise, target = data.draw(st.randoms(use_true_random=False)), data.draw(st.integers(100, 10_000))
    job = Job(target, 1)
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            job.restart()
        job.overhead_ms, job.records_per_ms = data.draw(st.integers(1, 5_000)), data.draw(st.floats(1, 10_000))
        spread = data.draw(st.floats(0, 0.2))
        job.several(250)
        aim = max(target, 2 * (job.overhead_ms + LEAST / job.records_per_ms))
        runs = [job.run(times=noise.uniform(1 - spread, 1 + spread)) for _ in range(100)]
        assert max(took for _, took in runs) <= 2 * aim
        ideal = min((aim - job.overhead_ms) * job.records_per_ms, 1_000_000 * LEAST) / aim
        assert sum(size for size, _ in runs) / sum(took for _, took in runs) >= 0.5 * ideal


def test_never_below_the_minimum() -> None:
    job = Job(1_000, 100)
    job.several(30)
    job.records_per_ms = 0.01
    assert all(LEAST <= size <= 2.1 * LEAST for size, _ in job.several(100)[20:])


def test_counts_in_multiples_of_the_source_minimum() -> None:
    job = Job(1_000, 10_000)
    records = job.several(5, available=ENDLESS)[-1][0]
    assert job.run(least=1)[0] == pytest.approx(2 * records / LEAST, rel=0.3)


def test_fast_source_still_has_a_limit() -> None:
    job = Job(1_000, 1e12)
    assert job.several(3_000)[-1][0] == 1_000_000 * LEAST


# --- In a source ------------------------------------------------------------------------------------------------------


class Driver:
    """Requests micro-batches that take ``ms`` each."""

    def __init__(
        self, source: Source[Any, Any, Any], ms: int = 100, parallelism: int = 1, target_ms: int = 1_000
    ) -> None:
        self.clock = ManualClock()
        self.ms = ms
        operator = operator_of(source, parallelism)
        limit = AdaptiveLimit(target_ms, self.clock)
        self.coordinator = SourceCoordinator(source, operator, self.clock, adaptive=limit)
        self.offset: SourceOffset = BEFORE_START

    def next(self) -> SourceOffset:
        self.offset = self.coordinator.next(self.offset)
        self.clock.advance(ms(self.ms))
        return self.offset


def size_of(offset: SourceOffset, source: Source[Any, Any, Any]) -> int:
    portions = [split for order in orders(offset, source.split_serializer) for split in order.portions]
    return sum(split.stop.position - split.start.position for split in portions)


def test_limit_of_the_source_is_the_upper_bound() -> None:
    source = Spans({"a": 10**6, "b": 10**6}, limit=500)
    driver = Driver(source)
    assert [size_of(driver.next(), source) for _ in range(5)] == [100, 200, 400, 500, 500]


def test_limit_does_not_grow_while_data_is_scarce() -> None:
    source = Spans({"a": 100}, bounded=False)
    driver = Driver(source)
    for end in range(10, 100, 10):
        source.ends["a"] = end
        assert size_of(driver.next(), source) == 10
    source.ends["a"] = 10**6
    assert size_of(driver.next(), source) == 100


def test_empty_polls_do_not_count_as_micro_batches() -> None:
    """The shortest micro-batch is taken as the overhead of a micro-batch without records."""
    source = Spans({"a": 10**6}, bounded=False)
    driver = Driver(source, ms=500, target_ms=100)
    sizes = [size_of(driver.next(), source) for _ in range(3)]
    source.ends["a"], driver.ms, there = sum(sizes), 5, driver.offset
    assert all(driver.next() == there for _ in range(50))
    source.ends["a"], driver.ms = 10**6, 500
    sizes += [size_of(driver.next(), source) for _ in range(3)]
    assert sizes == GROWING_IN_SPITE_OF_OVERHEAD


class Growing(CountingFeed):
    """Has as many records as the test sets."""

    target_batch_ms = 100

    def rows(self, job: WorkerJob, operator: Operator, portion: IndexedSplit) -> Iterator[list[Row]]:
        raise NotImplementedError("nobody reads them")


def test_empty_polls_of_a_generator_do_not_count() -> None:
    feed, clock = Growing(), ManualClock()
    feed.count = 10**6
    planner, offset = feed.planner(operator_of(Spans({}), 1), clock), {"position": 0}

    def batch(took: int) -> int:
        nonlocal offset
        before, there = offset["position"], planner.latest(offset, only_available=False)
        offset = {"position": there["position"]}  # not ended, although there is no data at the moment
        clock.advance(ms(took))
        return int(offset["position"]) - int(before)

    sizes = [batch(500) for _ in range(3)]
    feed.count = offset["position"]
    assert [batch(5) for _ in range(50)] == [0] * 50
    feed.count = 10**6
    sizes += [batch(500) for _ in range(3)]
    assert sizes == GROWING_IN_SPITE_OF_OVERHEAD


def test_restart_begins_small_at_the_last_position() -> None:
    source = Spans({"a": 10**6})
    before = Driver(source)
    for _ in range(6):
        before.next()
    after = Driver(source)
    after.offset = before.offset
    (order,) = orders(after.next(), source.split_serializer)
    assert (order.portions[0].start.position, order.portions[0].stop.position) == (6_300, 6_400)


def test_restart_continues_with_the_limit() -> None:
    source = Spans({"a": 10**6}, bounded=False)
    before = Driver(source)
    grown = [size_of(before.next(), source) for _ in range(6)][-1]
    after = Driver(source)
    after.offset = json.loads(json.dumps(before.offset))
    assert [size_of(after.next(), source) for _ in range(3)] == [100, grown, 2 * grown]


def test_restart_of_a_generator_continues_with_the_limit() -> None:
    feed, clock = Growing(), ManualClock()
    feed.count = 10**9
    offset, sizes = {"position": 0}, []
    for batches in (6, 3):  # of two runs
        planner = feed.planner(operator_of(Spans({}), 1), clock)
        for _ in range(batches):
            before, offset = offset["position"], json.loads(json.dumps(planner.latest(offset, only_available=False)))
            sizes.append(offset["position"] - before)
            clock.advance(ms(1))
    assert sizes == [100, 200, 400, 800, 1_600, 3_200, 100, 3_200, 6_400]


def test_limit_alone_is_no_reason_for_a_micro_batch() -> None:
    feed, clock = Growing(), ManualClock()
    feed.records_per_second = 1.0
    planner = feed.planner(operator_of(Spans({}), 1), clock)
    start = {"position": 500, "limit": 7.0}
    assert planner.latest(start, only_available=False) == start


def test_files_are_opened_only_as_needed(tmp_path: Path) -> None:
    """As with a limit of the source itself, files are read one after the other."""
    for number in range(9):
        (tmp_path / f"{number}").write_text("line\n")
    source = FilesSource(tmp_path, text_lines(str), files_per_batch=100)
    driver = Driver(source)
    read = [[split.stop.name for order in orders(driver.next(), source.split_serializer) for split in order.portions]]
    read += [[split.stop.name for order in orders(driver.next(), source.split_serializer) for split in order.portions]]
    assert read == [["0"], ["1", "2"]]


def test_restart_continues_with_the_next_file(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}").write_text("line\n")
    source = FilesSource(tmp_path, text_lines(str), files_per_batch=100)
    before, after = Driver(source), Driver(source)
    after.offset = before.next()
    (order,) = orders(after.next(), source.split_serializer)
    assert [split.stop.name for split in order.portions] == ["1"]


def test_each_source_of_a_hybrid_has_its_own_unit() -> None:
    class Dozens(Spans):
        least_per_batch = 12

    source = HybridSource([Spans({"a": 700}), Dozens({"b": 10**6})])
    driver = Driver(source)
    sizes = []
    for _ in range(4):
        portions = [split for order in orders(driver.next(), source.split_serializer) for split in order.portions]
        sizes += [split.stop.split.position - split.start.split.position for split in portions]
    assert sizes == [100, 200, 400, 8 * 12]


# --- Public API -------------------------------------------------------------------------------------------------------


def test_both_triggers_accept_a_target() -> None:
    assert Trigger.processing_time(target_batch_duration=ms(700)) == Trigger(0, 700)
    assert Trigger.available_now(target_batch_duration=ms(700)) == Trigger(None, 700)
    assert Trigger.available_now() == Trigger(None, None)


@pytest.mark.parametrize("target", [ms(0), ms(-5), ms(1.5), 5, "1s"])
def test_target_must_be_a_duration(target: Any) -> None:
    for trigger in (Trigger.processing_time, Trigger.available_now):
        with pytest.raises(ConfigurationError, match="target_batch_duration must be"):
            trigger(target_batch_duration=target)


def test_target_and_interval_are_exclusive() -> None:
    with pytest.raises(ConfigurationError, match="Remove the interval"):
        Trigger.processing_time(ms(1_000), target_batch_duration=ms(500))
