"""Histograms of functions, and metrics that survive restarts, rescaling and savepoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import Collector, NonPartitionedContext, PartitionedContext
from dsv2.errors import ContractError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.jobs.progress import HistogramProgress
from dsv2.model import DEFAULT_BUCKETS, Histogram
from dsv2.runtime.report.metrics import DefaultHistogram, DefaultMetricGroup, merged
from dsv2.testing import OneInputHarness
from tests.support import driven, one_input

BOUNDS = st.lists(st.integers(-20, 20), min_size=1, max_size=6, unique=True).map(sorted)
VALUES = st.lists(st.integers(-30, 30), max_size=20)


def filled(values: Sequence[float], bounds: Sequence[float]) -> DefaultHistogram:
    histogram = DefaultHistogram("h", bounds)
    for value in values:
        histogram.update(value)
    return histogram


class Delays(OneInputStreamProcessFunction[float, int]):
    """Keeps its histogram in a field, as Flink programs do. ``later``: Buckets that it requests with each record."""

    def __init__(self, later: Sequence[float] | None = None) -> None:
        self.later = later

    def open(self, ctx: NonPartitionedContext[int]) -> None:
        self.delays = ctx.metric_group.histogram("delays", (1, 10))

    def process_record(self, record: float, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        delays = self.delays if self.later is None else ctx.metric_group.histogram("delays", self.later)
        delays.update(record)
        output.collect(delays.count)


def test_bound_belongs_to_its_bucket() -> None:
    harness = OneInputHarness(Delays())
    harness.input.push(0.5, 1, 1.5, 10, 11)
    assert harness.progress.histograms == {"delays": HistogramProgress((1, 10), (2, 2, 1), 24.0, 0.5, 11)}
    assert harness.progress.histograms["delays"].count == 5
    assert harness.output.records == [1, 2, 3, 4, 5]


def test_histogram_without_values() -> None:
    progress = OneInputHarness(Delays()).progress.histograms["delays"]
    assert (progress, progress.count) == (HistogramProgress((1, 10), (0, 0, 0)), 0)
    assert progress.quantile(0.5) is None


def test_default_buckets_cover_milliseconds_and_seconds() -> None:
    assert (DEFAULT_BUCKETS[:4], DEFAULT_BUCKETS[-1], len(DEFAULT_BUCKETS)) == ((0.001, 0.0025, 0.005, 0.01), 1e4, 22)
    group = DefaultMetricGroup()
    assert group.histogram("h").bounds == DEFAULT_BUCKETS
    assert group.histogram("h") is group.histogram("h", DEFAULT_BUCKETS)


def test_numbers_of_other_types_become_floats() -> None:
    histogram = filled([True, Decimal("1.5"), np.float32(2), np.int64(3)], [2])  # type: ignore[list-item]
    assert histogram.parts() == ((2,), (3, 1), 7.5, 1.0, 3.0)
    assert {type(value) for value in histogram.parts()[2:]} == {float}


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(UserFunctionError, match=r"Histogram 'delays': update.* is not a finite number"):
        OneInputHarness(Delays()).input.push(value)


@pytest.mark.parametrize("buckets", [[], [1, 1], [2, 1], [1, inf], [nan], range(300)])
def test_wrong_buckets_are_refused(buckets: Any) -> None:
    with pytest.raises(ContractError, match="Histogram 'h': buckets must be 1 to 200 finite numbers in ascending"):
        DefaultMetricGroup().histogram("h", buckets)


def test_buckets_cannot_change_within_a_run() -> None:
    group = DefaultMetricGroup()
    assert group.histogram("h", [1, 10]) is group.histogram("h", (1, 10)) is group.histogram("h")
    with pytest.raises(ContractError, match=r"Histogram 'h' has the buckets \(1\.0, 10\.0\), and cannot have others"):
        group.histogram("h", [100])


@pytest.mark.parametrize("first", ["counter", "gauge", "histogram"])
@pytest.mark.parametrize("second", ["counter", "gauge", "histogram"])
def test_name_belongs_to_one_kind(first: str, second: str) -> None:
    group = DefaultMetricGroup()
    create: dict[str, Callable[[str], object]] = {
        "counter": group.counter,
        "gauge": lambda name: group.gauge(name, lambda: 1),
        "histogram": group.histogram,
    }
    create[first]("n")
    if first == second:
        create[second]("n")
        return
    with pytest.raises(ContractError, match="Metric 'n' is a counter, a gauge or a histogram, and cannot be two"):
        create[second]("n")


def test_histogram_survives_restarts() -> None:
    driver = driven(lambda numbers: numbers.process(Delays()).with_uid("f"))
    for value in (0.5, 5, 50):
        driver.send(value)
        driver.restart()
    assert driver.progress("f").histograms == {"delays": ((1, 10), (1, 1, 1), 55.5, 0.5, 50)}


def test_other_buckets_after_a_restart_begin_again() -> None:
    before = OneInputHarness(Delays())
    before.input.push(5)
    after = OneInputHarness(Delays(later=[100]), snapshot=before.snapshot())
    assert list(after.progress.histograms["delays"].bounds) == [1, 10]
    after.input.push(50, 60)
    assert after.progress.histograms["delays"] == HistogramProgress((100,), (2, 0), 110.0, 50, 60)


def test_histograms_are_rescaled() -> None:
    before = [OneInputHarness(Delays(), parallelism=2, subtask=index) for index in (0, 1)]
    before[0].input.push(0.5, 5)
    before[1].input.push(7, 70)
    snapshots = [harness.snapshot() for harness in before]
    after = [OneInputHarness(Delays(), parallelism=3, subtask=index, rescaled=snapshots) for index in range(3)]
    for harness in after:
        harness.input.push(20)
    counts = [harness.progress.histograms["delays"].counts for harness in after]
    assert counts == [(1, 2, 2), (0, 0, 1), (0, 0, 1)]
    assert after[0].progress.histograms["delays"].min == 0.5


def test_job_without_histograms_stores_nothing_for_them() -> None:
    driver = driven(lambda numbers: numbers.process(one_input()).with_uid("f"))
    (task,) = driver.subtask._tasks
    assert "metrics" not in task.snapshot()


class Sizes(OneInputStreamProcessFunction[int, int]):
    """A gauge that reads a method, and one that reads another callable."""

    def __init__(self) -> None:
        self.largest = 0

    def open(self, ctx: NonPartitionedContext[int]) -> None:
        ctx.metric_group.gauge("largest", self.size)
        ctx.metric_group.gauge("one", lambda: 1)

    def size(self) -> int:
        return self.largest

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        self.largest = max(record, self.largest)


def test_gauge_that_reads_a_method_survives_restarts() -> None:
    driver = driven(lambda numbers: numbers.process(Sizes()).with_uid("f"))
    driver.send(3)
    assert driver.progress("f").gauges == {"largest": 3, "one": 1}
    for number in (5, 4):
        driver.restart()
        driver.send(number)
        assert driver.progress("f").gauges == {"largest": 5}


def test_gauge_ends_with_its_method(monkeypatch: pytest.MonkeyPatch) -> None:
    before = OneInputHarness(Sizes())
    before.input.push(3)
    snapshot = before.snapshot()
    monkeypatch.delattr(Sizes, "size")  # from the program that continues
    after = OneInputHarness(Sizes(), snapshot=snapshot)
    assert after.progress.gauges == {}


def test_gauges_and_histograms_of_a_rescaled_job() -> None:
    before = [OneInputHarness(Sizes(), parallelism=2, subtask=index) for index in (0, 1)]
    after = OneInputHarness(Sizes(), rescaled=[harness.snapshot() for harness in before])
    after.input.push(2)
    assert after.progress.gauges == {"largest": 2}


@given(st.lists(st.tuples(BOUNDS, VALUES), min_size=1, max_size=4))
def test_merged_histogram_counts_all_values_by_the_shared_bounds(subtasks: list[tuple[list[int], list[int]]]) -> None:
    shared = sorted(set.intersection(*(set(bounds) for bounds, _ in subtasks)))
    values = [value for _, given in subtasks for value in given]
    expected = HistogramProgress(
        tuple(shared),
        tuple(
            sum(lower < value <= upper for value in values)
            for lower, upper in zip([-inf, *shared], [*shared, inf], strict=True)
        ),
        sum(values),
        min(values, default=None),
        max(values, default=None),
    )
    assert merged(filled(given, bounds).parts() for bounds, given in subtasks) == expected


@given(BOUNDS, VALUES.filter(bool), st.floats(0, 1))
def test_quantile_lies_in_the_bucket_of_the_true_one(bounds: list[int], values: list[int], fraction: float) -> None:
    estimate = merged([filled(values, bounds).parts()]).quantile(fraction)
    true = sorted(values)[max(0, -int(-fraction * len(values) // 1) - 1)]
    limits = [-inf, *bounds, inf]
    upper = next(index for index, bound in enumerate(limits) if true <= bound)
    assert estimate is not None
    assert limits[upper - 1] <= estimate <= limits[upper]
    assert min(values) <= estimate <= max(values)


def test_histogram_protocol_is_what_functions_get() -> None:
    histogram: Histogram = DefaultMetricGroup().histogram("h")
    histogram.update(1)
    assert histogram.count == 1


def test_no_fraction_leads_beyond_the_largest_value() -> None:
    histogram = merged([filled([1, 5], [2]).parts()])
    assert (histogram.quantile(1.0), histogram.quantile(1.5)) == (5, 5)
