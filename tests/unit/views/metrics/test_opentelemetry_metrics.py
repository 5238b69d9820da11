"""The metrics and traces that an ``OpenTelemetryListener`` sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from dsv2 import JobStatus
from dsv2.jobs.progress import BatchProgress, HistogramProgress, SplitProgress
from dsv2.testing import ManualClock
from dsv2.views.metrics.definitions import ATTRIBUTES, METRICS, MetricKind
from dsv2.views.metrics.opentelemetry import HistogramExporter, OpenTelemetryListener
from tests.metered import NOON_MS, PlayedJob

HISTOGRAM = HistogramProgress((0.5, 2.0), (1, 2, 3), 12.5, 0.25, 9.0)
LATER = HistogramProgress((0.5, 2.0), (1, 4, 6), 42.5, 0.25, 19.0)
JOIN = (("dsv2.job.name", "shop"), ("dsv2.operator.uid", "join"))
SHOP = JOIN[:1]


@dataclass
class Received:
    """Everything that a listener has sent."""

    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def listener(self, **options: Any) -> OpenTelemetryListener:
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        return OpenTelemetryListener(
            MeterProvider([self.reader], shutdown_on_exit=False), tracers, clock=ManualClock(NOON_MS), **options
        )

    def metrics(self) -> dict[tuple[Any, ...], Any]:
        return points(self.reader.get_metrics_data())


def points(data: MetricsData | None) -> dict[tuple[Any, ...], Any]:
    """The values by name and attributes; histograms are data points."""
    found: dict[tuple[Any, ...], Any] = {}
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            assert scope.scope.name == "dsv2"
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    place = (metric.name, *(point.attributes or {}).items())
                    assert place not in found
                    found[place] = point.value if isinstance(point, NumberDataPoint) else point
    return found


class Kept(MetricExporter):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[MetricsData] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        self.data.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        pass


@pytest.fixture
def received() -> Received:
    return Received()


def test_metrics_of_a_job(received: Received) -> None:
    job = PlayedJob(received.listener()).start()
    job.report(
        records=10,
        counters={"errors_skipped": 2, "Seen": 3},
        gauges={"size of it": 1.5},
        event_times=(5_000, 3_500),
        watermarks={"day": (4, 2)},
        splits=(SplitProgress("a", 0, lag=5), SplitProgress("b", 0, lag=6, idle=True)),
    )
    found = received.metrics()
    assert {place: value for place, value in found.items() if not isinstance(value, HistogramDataPoint)}.items() >= {
        ("dsv2.job.start_time", *SHOP): NOON_MS / 1000,
        ("dsv2.job.ends", *SHOP, ("dsv2.job.status", "failed")): 0,
        ("dsv2.batch.id", *SHOP): 0,
        ("dsv2.batch.end_time", *SHOP): NOON_MS / 1000 + 0.4,
        ("dsv2.batch.phase_time", *SHOP, ("dsv2.batch.phase", "source")): 0.05,
        ("dsv2.operator.records_in", *JOIN): 10,
        ("dsv2.operator.errors", *JOIN, ("dsv2.error.outcome", "skipped")): 2,
        ("dsv2.operator.event_time", *JOIN): 3.5,
        ("dsv2.operator.watermark", *JOIN, ("dsv2.watermark.identifier", "day")): 2,
        ("dsv2.operator.state_size", *JOIN): 2001,
        ("dsv2.source.records_lag", *SHOP, ("dsv2.operator.uid", "orders")): 11,
        ("dsv2.function.seen", *JOIN): 3,
        ("dsv2.function.size_of_it", *JOIN): 1.5,
    }.items()
    duration = found["dsv2.batch.duration", *SHOP]
    assert (duration.count, duration.sum, duration.explicit_bounds[:3]) == (1, 0.4, (0.1, 0.25, 0.5))
    assert not [place for place in found if any(name == "dsv2.split.id" for name, _ in place[1:])]


def test_every_metric_has_its_unit_and_description(received: Received) -> None:
    listener = received.listener(per_split=True)
    split = SplitProgress("a", 0, lag=5, event_time=1)
    PlayedJob(listener).start().report(event_times=(1, 1), watermarks={"day": (1,)}, splits=(split,))
    data = received.reader.get_metrics_data()
    assert data is not None
    found = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    expected = [metric for metric in METRICS if metric.kind is not MetricKind.INFO]
    assert found.keys() == {metric.in_opentelemetry for metric in expected}
    for metric in expected:
        actual = found[metric.in_opentelemetry]
        assert (actual.unit, actual.description) == (metric.unit, metric.description)
        assert {ATTRIBUTES[label] for label in metric.labels} == set(actual.data.data_points[0].attributes or {})


def test_attributes_of_subtasks_and_splits(received: Received) -> None:
    job = PlayedJob(received.listener(per_subtask=True, per_split=True)).start()
    job.report(records=10, splits=(SplitProgress("a", 0, lag=5),))
    found = received.metrics()
    assert found["dsv2.operator.records_in", *JOIN, ("dsv2.subtask.index", "1")] == 5
    assert ("dsv2.operator.records_in", *JOIN) not in found
    assert found["dsv2.split.records_lag", *SHOP, ("dsv2.operator.uid", "orders"), ("dsv2.split.id", "a")] == 5


def test_counters_begin_at_zero_with_a_run_that_continues(received: Received) -> None:
    listener = received.listener()
    name = ("dsv2.operator.records_in", *JOIN)
    job = PlayedJob(listener).start().report(7, records=700, counters={"seen": 70})
    assert received.metrics()[name] == 0, "700 of earlier runs would look like a sudden increase"
    job.report(8, records=710, counters={"seen": 71, "new": 2})
    found = received.metrics()
    assert (found[name], found["dsv2.function.seen", *JOIN], found["dsv2.function.new", *JOIN]) == (10, 1, 2)
    assert found["dsv2.operator.user_time", *JOIN] == pytest.approx(2.131), "counted in this run only"
    assert found["dsv2.operator.state_size", *JOIN] == 2001
    job.end()
    job.start().report(0, records=5)  # begins anew
    assert received.metrics()[name] == 5


def test_records_of_the_first_micro_batch_of_a_run_that_continues(received: Received) -> None:
    PlayedJob(received.listener()).start().report(7, records=700, rate=25.0, counters={"seen": 70})
    found = received.metrics()
    assert found["dsv2.operator.records_in", *JOIN] == 10, "in 0.4 s"
    assert found["dsv2.function.seen", *JOIN] == 0


def test_rates_of_operators_say_nothing_about_subtasks(received: Received) -> None:
    PlayedJob(received.listener(per_subtask=True)).start().report(7, records=700, rate=25.0)
    assert received.metrics()["dsv2.operator.records_in", *JOIN, ("dsv2.subtask.index", "1")] == 0


def test_metrics_of_an_ended_job_are_removed(received: Received) -> None:
    listener = received.listener()
    shop, stock = PlayedJob(listener).start().report(), PlayedJob(listener, "stock").start().report()
    shop.end()
    found = received.metrics()
    in_shop = {place[0] for place in found if ("dsv2.job.name", "shop") in place}
    assert in_shop == {"dsv2.job.ends", "dsv2.batch.duration"}
    assert found["dsv2.job.ends", *SHOP, ("dsv2.job.status", "finished")] == 1
    assert found["dsv2.batch.id", ("dsv2.job.name", stock.name)] == 0


def test_names_that_would_be_equal(received: Received, caplog: pytest.LogCaptureFixture) -> None:
    job = PlayedJob(received.listener()).start().report(counters={"a b": 1, "A B": 2}, gauges={"a_b": 1.0})
    job.report(1, counters={"a b": 1, "A B": 2}, gauges={"a_b": 1.0})
    assert [value for place, value in received.metrics().items() if place[0] == "dsv2.function.a_b"] == [2]
    assert len(caplog.messages) == 2
    assert "The counter 'a b' of functions is not exported: another metric has its name." in caplog.text


def export(*reports: Mapping[str, HistogramProgress], first_batch: int = 0) -> tuple[Kept, Any]:
    kept = Kept()
    exporter = HistogramExporter(kept)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
    provider = MeterProvider([reader], shutdown_on_exit=False)
    job = PlayedJob(OpenTelemetryListener(provider, histograms=exporter)).start()
    for number, histograms in enumerate(reports, start=first_batch):
        job.report(number, histograms=histograms)
        provider.force_flush()
    provider.shutdown()
    return kept, [points(data).get(("dsv2.function.delay", *JOIN)) for data in kept.data]


def test_last_values_are_exported_when_a_job_ends() -> None:
    kept = Kept()
    reader = PeriodicExportingMetricReader(kept, export_interval_millis=float("inf"))
    provider = MeterProvider([reader], shutdown_on_exit=False)
    PlayedJob(OpenTelemetryListener(provider)).start().report(records=10).end()
    provider.force_flush()
    provider.shutdown()
    values = [points(data).get(("dsv2.operator.records_in", *JOIN)) for data in kept.data]
    assert values == [10, None]


def test_histogram_of_a_function() -> None:
    kept, (point, later) = export({"delay": HISTOGRAM}, {"delay": LATER})
    assert (point.explicit_bounds, point.bucket_counts) == ((0.5, 2.0), (1, 2, 3))
    assert (point.count, point.sum, point.min, point.max) == (6, 12.5, 0.25, 9.0)
    assert 0 < point.start_time_unix_nano <= point.time_unix_nano <= later.time_unix_nano
    assert (later.bucket_counts, later.start_time_unix_nano) == ((1, 4, 6), point.start_time_unix_nano)
    (metric,) = [
        metric
        for scope in kept.data[0].resource_metrics[0].scope_metrics
        for metric in scope.metrics
        if metric.name == "dsv2.function.delay"
    ]
    assert isinstance(metric.data, Histogram)
    assert metric.data.aggregation_temporality is AggregationTemporality.CUMULATIVE


def test_histogram_in_the_protocol_of_collectors() -> None:
    kept, _ = export({"delay": HISTOGRAM})
    (resource,) = encode_metrics(kept.data[0]).resource_metrics
    found = [one for scope in resource.scope_metrics for one in scope.metrics if one.name == "dsv2.function.delay"]
    (point,) = found[0].histogram.data_points
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([1, 2, 3], [0.5, 2.0])
    assert (point.count, point.sum, point.min, point.max) == (6, 12.5, 0.25, 9.0)


def test_histogram_begins_at_zero_with_a_run_that_continues() -> None:
    _, (_, later) = export({"delay": HISTOGRAM}, {"delay": LATER}, first_batch=7)
    assert (later.bucket_counts, later.sum, later.count) == ((0, 2, 3), 30.0, 5)


def test_histogram_with_other_buckets_than_before() -> None:
    other = HistogramProgress((3.0,), (1, 0), 1.0, 1.0, 1.0)
    _, (_, later) = export({"delay": HISTOGRAM}, {"delay": other}, first_batch=7)
    assert (later.bucket_counts, later.sum) == ((1, 0), 1.0)


def test_histogram_without_values_is_not_exported() -> None:
    _, (point,) = export({"delay": HistogramProgress((1.0,), (0, 0))})
    assert point is None


def test_histograms_need_the_exporter(received: Received, caplog: pytest.LogCaptureFixture) -> None:
    PlayedJob(received.listener()).start().report(histograms={"delay": HISTOGRAM}).report(1)
    assert [place for place in received.metrics() if place[0] == "dsv2.function.delay"] == []
    assert caplog.messages == [
        "The histogram 'delay' of functions is not exported. Pass a HistogramExporter to OpenTelemetryListener."
    ]


def tree(spans: Sequence[ReadableSpan]) -> dict[str, tuple[str | None, float, float]]:
    """For each span the name of its parent, and its start and end in ms since noon."""
    names = {span.context.span_id: span.name for span in spans if span.context is not None}
    assert len({span.context.trace_id for span in spans if span.context is not None}) == 1
    assert all(span.start_time is not None and span.end_time is not None for span in spans)
    return {
        span.name: (
            None if span.parent is None else names[span.parent.span_id],
            ((span.start_time or 0) - NOON_MS * 1_000_000) / 1e6,
            ((span.end_time or 0) - NOON_MS * 1_000_000) / 1e6,
        )
        for span in spans
    }


def test_trace_of_a_micro_batch(received: Received) -> None:
    PlayedJob(received.listener()).start().report(records=20)
    spans = received.spans.get_finished_spans()
    assert tree(spans) == {
        "micro-batch": (None, 0, 400),
        "planning": ("micro-batch", 0, 100),
        "source": ("micro-batch", 100, 150),
        "level 1": ("micro-batch", 150, 350),
        "join": ("level 1", 150, 181),
    }
    attributes = {span.name: dict(span.attributes or {}) for span in spans}
    assert attributes["micro-batch"] == {
        "dsv2.job.name": "shop",
        "dsv2.batch.id": 0,
        "dsv2.batch.records_in": 5,
        "dsv2.batch.records_out": 4,
    }
    assert attributes["join"] == {
        "dsv2.operator.uid": "join",
        "dsv2.operator.name": "Join",
        "dsv2.operator.records_in": 20,
        "dsv2.operator.records_out": 20,
        "dsv2.operator.user_time": 0.061,
    }


def test_operators_in_a_later_micro_batch(received: Received) -> None:
    job = PlayedJob(received.listener()).start().report(4, records=20)
    assert "join" not in tree(received.spans.get_finished_spans()), "what it did before is not known"
    received.spans.clear()
    job.report(5, records=30)
    spans = received.spans.get_finished_spans()
    assert tree(spans)["join"] == ("level 1", 5150, 5165)
    (join,) = (span for span in spans if span.name == "join")
    assert (join.attributes or {})["dsv2.operator.records_in"] == 10


def test_phases_at_the_same_time(received: Received) -> None:
    batch = BatchProgress(0, NOON_MS, 100.0, {"source": 80.0, "level 1": 90.0, "commit": 300.0})
    PlayedJob(received.listener()).start().report(batches=(batch,))
    found = tree(received.spans.get_finished_spans())
    assert (found["source"], found["level 1"]) == (("micro-batch", 0, 80), ("micro-batch", 10, 100))
    assert found["commit"] == ("micro-batch", 0, 300)


def test_failed_job(received: Received) -> None:
    listener = received.listener()
    PlayedJob(listener).start().end(JobStatus.FAILED)
    (span,) = received.spans.get_finished_spans()
    assert (span.name, span.status.status_code) == ("micro-batch", StatusCode.ERROR)
    assert dict(span.attributes or {}) == {"dsv2.job.name": "shop"}


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.STOPPED])
def test_job_that_ends_well_has_no_error(received: Received, status: JobStatus) -> None:
    PlayedJob(received.listener()).start().end(status)
    assert received.spans.get_finished_spans() == ()


def test_global_providers_do_nothing_by_default() -> None:
    PlayedJob(OpenTelemetryListener()).start().report(records=10).end(JobStatus.FAILED)


def test_units_are_of_ucum() -> None:
    assert {metric.unit for metric in METRICS if not metric.unit.startswith("{")} == {"", "s", "By"}
    assert set(ATTRIBUTES) == {"subtask"}.union(*(metric.labels for metric in METRICS))
    assert all(name.startswith("dsv2.") for name in ATTRIBUTES.values())
