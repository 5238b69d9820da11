"""Counters, gauges and histograms of functions (Flink ``MetricGroup``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import Any, TypeAlias

from dsv2.errors import ContractError
from dsv2.jobs.progress import HistogramProgress
from dsv2.model.context import DEFAULT_BUCKETS
from dsv2.runtime.serde.references import Reference

_MAX_BUCKETS = 200

HistogramParts: TypeAlias = tuple[Sequence[float], Sequence[int], float, float, float]
"""A histogram as built-in values: the bounds, the counts of the buckets, the sum, the minimum and the maximum."""


class DefaultCounter(Reference):
    """``Counter``. A field of a function that holds one refers to the counter of that name after a restart."""

    __slots__ = ("count", "name")

    reference_kind = "counter"

    def __init__(self, name: str = "", count: int = 0) -> None:
        self.name = name
        self.count = count

    @property
    def reference_name(self) -> str:
        return self.name

    def inc(self, amount: int = 1) -> None:
        """Increase the counter by ``amount``."""
        self.count += amount


class DefaultHistogram(Reference):
    """``Histogram``. A field of a function that holds one refers to the histogram of that name after a restart."""

    __slots__ = ("bounds", "counts", "is_restored", "max", "min", "name", "sum")

    reference_kind = "histogram"

    def __init__(self, name: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0
        self.min = inf
        self.max = -inf
        self.is_restored = False

    @property
    def reference_name(self) -> str:
        return self.name

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def update(self, value: float) -> None:
        """Add ``value``."""
        if not isfinite(value):
            raise ContractError(f"Histogram {self.name!r}: update({value}) is not a finite number.")
        number = float(value)  # of NumPy, for example
        self.counts[bisect_left(self.bounds, number)] += 1
        self.sum += number
        if number < self.min:
            self.min = number
        if number > self.max:
            self.max = number

    def parts(self) -> HistogramParts:
        """Return the histogram as built-in values."""
        return self.bounds, tuple(self.counts), self.sum, self.min, self.max

    @staticmethod
    def restored(name: str, parts: HistogramParts) -> DefaultHistogram:
        """Return a histogram with the values of ``parts``."""
        bounds, counts, total, least, greatest = parts
        histogram = DefaultHistogram(name, bounds)
        histogram.counts[:] = counts
        histogram.sum, histogram.min, histogram.max = total, least, greatest
        histogram.is_restored = True
        return histogram


class DefaultMetricGroup:
    """``MetricGroup``.

    Args:
        function: The function of the user. Gauges that read one of its methods survive a restart.
    """

    def __init__(self, function: object = None) -> None:
        self._function = function
        self.counters: dict[str, DefaultCounter] = {}
        self.gauges: dict[str, Callable[[], int | float]] = {}
        self.histograms: dict[str, DefaultHistogram] = {}

    def counter(self, name: str) -> DefaultCounter:
        """Return the counter ``name``, creating it if necessary."""
        found = self.counters.get(name)
        if found is None:
            self._check_unused(name, self.gauges, self.histograms)
            found = self.counters[name] = DefaultCounter(name)
        return found

    def gauge(self, name: str, read: Callable[[], int | float]) -> None:
        """Register a gauge that reports the value of ``read()``."""
        self._check_unused(name, self.counters, self.histograms)
        self.gauges[name] = read

    def histogram(self, name: str, buckets: Sequence[float] | None = None) -> DefaultHistogram:
        """Return the histogram ``name``, creating it if necessary."""
        found = self.histograms.get(name)
        if found is not None and (buckets is None or found.bounds == tuple(buckets)):
            return found
        if found is None:
            self._check_unused(name, self.counters, self.gauges)
        elif not found.is_restored:  # otherwise the program has other buckets than before the restart
            raise ContractError(
                f"Histogram {name!r} has the buckets {found.bounds}, and cannot have others: {tuple(buckets or ())}."
            )
        bounds = DEFAULT_BUCKETS if buckets is None else _checked_bounds(name, buckets)
        histogram = self.histograms[name] = DefaultHistogram(name, bounds)
        return histogram

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Return histograms, and the gauges that read a method of the function. Empty if it has neither."""
        histograms = {name: histogram.parts() for name, histogram in self.histograms.items()}
        gauges = {name: method for name, read in self.gauges.items() if (method := self._method(read)) is not None}
        return _without_empty({"histograms": histograms, "gauges": gauges})

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore a ``snapshot``. Gauges whose method the program no longer has are left out."""
        for name, parts in state.get("histograms", {}).items():
            self.histograms[name] = DefaultHistogram.restored(name, parts)
        for name, method in state.get("gauges", {}).items():
            if callable(read := getattr(self._function, method, None)):
                self.gauges[name] = read

    def _method(self, read: Callable[[], object]) -> str | None:
        """Return the name of the method of the function that ``read`` is; None if it is something else."""
        name = getattr(read, "__name__", "")
        return name if getattr(self._function, name, None) == read else None

    def _check_unused(self, name: str, *others: Collection[str]) -> None:
        if any(name in other for other in others):
            raise ContractError(f"Metric {name!r} is a counter, a gauge or a histogram, and cannot be two of them.")


def merged(parts: Iterable[HistogramParts]) -> HistogramProgress:
    """Merge the histograms of subtasks. If their bounds differ, those that all of them have remain."""
    given = list(parts)
    bounds = sorted(set[float].intersection(*({*one[0]} for one in given)))
    counts = [0] * (len(bounds) + 1)
    for uppers, values, *_ in given:
        for upper, count in zip((*uppers, inf), values, strict=True):
            counts[bisect_left(bounds, upper)] += count
    least, greatest = min(one[3] for one in given), max(one[4] for one in given)
    return HistogramProgress(
        tuple(bounds),
        tuple(counts),
        sum(one[2] for one in given),
        None if least == inf else least,
        None if greatest == -inf else greatest,
    )


def merged_metrics(states: Sequence[Mapping[str, Mapping[str, Any]]], parallelism: int) -> list[dict[str, Any]]:
    """Return the ``snapshot`` of each new subtask. The first gets all values, the others get empty histograms."""
    histograms: dict[str, list[HistogramParts]] = {}
    gauges: dict[str, str] = {}
    for state in states:
        gauges.update(state.get("gauges", {}))
        for name, parts in state.get("histograms", {}).items():
            histograms.setdefault(name, []).append(parts)
    whole = {name: _parts_of(merged(parts)) for name, parts in sorted(histograms.items())}
    empty = {name: DefaultHistogram(name, parts[0]).parts() for name, parts in whole.items()}
    return [_without_empty({"histograms": empty if index else whole, "gauges": gauges}) for index in range(parallelism)]


def _without_empty(parts: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {kind: named for kind, named in parts.items() if named}


def _parts_of(merged: HistogramProgress) -> HistogramParts:
    least = inf if merged.min is None else merged.min
    greatest = -inf if merged.max is None else merged.max
    return merged.bounds, merged.counts, merged.sum, least, greatest


def _checked_bounds(name: str, buckets: Sequence[float]) -> tuple[float, ...]:
    bounds = tuple(map(float, buckets))
    ascend = all(lower < upper for lower, upper in pairwise(bounds))
    if not bounds or len(bounds) > _MAX_BUCKETS or not ascend or not all(map(isfinite, bounds)):
        raise ContractError(
            f"Histogram {name!r}: buckets must be 1 to {_MAX_BUCKETS} finite numbers in ascending order, the upper "
            f"bounds of the buckets, not {tuple(buckets)}."
        )
    return bounds
