"""Adds the histograms of functions to what OpenTelemetry exports.

Instruments take single values, and the SDK for Python has no other way to add a histogram that has been counted
elsewhere. Therefore the exporter adds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    ScopeMetrics,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from dsv2.jobs.progress import HistogramProgress
from dsv2.version import __version__

_SCOPE = InstrumentationScope("dsv2", __version__)


class NamedHistogram(NamedTuple):
    """A histogram as it is exported. ``start_ns``: Since when it counts, in ns since the epoch."""

    name: str
    description: str
    attributes: Mapping[str, str]
    histogram: HistogramProgress
    start_ns: int


class HistogramExporter(MetricExporter):
    """Wraps an exporter of metrics, and adds the histograms of functions, with cumulative temporality.

    Pass it to a ``PeriodicExportingMetricReader`` and to the ``OpenTelemetryListener``.

    Args:
        exporter: Exports everything, such as an ``OTLPMetricExporter``.
    """

    def __init__(self, exporter: MetricExporter) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self._sources: list[Callable[[], Iterable[NamedHistogram]]] = []

    def add_source(self, source: Callable[[], Iterable[NamedHistogram]]) -> None:
        """Called by a listener. ``source``: Returns its histograms."""
        self._sources.append(source)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Called by the reader."""
        return self._exporter.export(self._with_histograms(metrics_data), timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Called by the reader."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Called by the reader."""
        self._exporter.shutdown(timeout_millis, **kwargs)

    def _with_histograms(self, data: MetricsData) -> MetricsData:
        found = _metrics([histogram for source in self._sources for histogram in source()])
        if not found or not data.resource_metrics:
            return data
        first, *others = data.resource_metrics
        scope = ScopeMetrics(_SCOPE, found, "")
        return MetricsData([replace(first, scope_metrics=[*first.scope_metrics, scope]), *others])


def _metrics(histograms: Iterable[NamedHistogram]) -> list[Metric]:
    now = time.time_ns()
    points: dict[tuple[str, str], list[HistogramDataPoint]] = {}
    for name, description, attributes, histogram, start_ns in histograms:
        if histogram.min is not None and histogram.max is not None:
            points.setdefault((name, description), []).append(
                HistogramDataPoint(
                    attributes,
                    start_ns,
                    now,
                    histogram.count,
                    histogram.sum,
                    histogram.counts,
                    histogram.bounds,
                    histogram.min,
                    histogram.max,
                )
            )
    return [
        Metric(name, description, "", Histogram(data_points, AggregationTemporality.CUMULATIVE))
        for (name, description), data_points in points.items()
    ]
