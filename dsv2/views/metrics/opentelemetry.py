"""Metrics and traces of jobs for OpenTelemetry. Requires the extra ``dsv2[metrics]``."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from dsv2.base.clock import Clock
from dsv2.checks.client_library import require_client_library
from dsv2.graph import Plan
from dsv2.jobs.handle import JobHandle, JobStatus
from dsv2.jobs.progress import BatchProgress, HistogramProgress, JobProgress
from dsv2.version import __version__
from dsv2.views.metrics import definitions as m
from dsv2.views.metrics.definitions import ATTRIBUTES, BATCH_BUCKETS, METRICS, Metric, MetricKind, Sample
from dsv2.views.metrics.jobs import JobsListener, RunningJob
from dsv2.views.metrics.samples import samples_of, samples_of_functions, samples_of_run

require_client_library("opentelemetry.sdk", "metrics", "dsv2.views.metrics.opentelemetry")

from opentelemetry import metrics, trace  # noqa: E402
from opentelemetry.metrics import CallbackOptions, Observation  # noqa: E402
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider  # noqa: E402

from dsv2.views.metrics.histogram_exporter import HistogramExporter, NamedHistogram  # noqa: E402
from dsv2.views.metrics.traces import record_batch, record_failure  # noqa: E402

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ("HistogramExporter", "OpenTelemetryListener")

_LOG = logging.getLogger(__name__)
_INVALID = re.compile(r"[^-_./a-zA-Z0-9]")
_LONGEST_NAME = 255
_FLUSH_MILLIS = 5_000
_Place: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A metric and the labels of a sample."""


class OpenTelemetryListener(JobsListener):
    """Sends the metrics of running jobs, and a trace of each micro-batch, to OpenTelemetry.

    ``docs/metrics.md`` lists the metrics and spans. Counters and histograms count in this run: those that a job brings
    along from its checkpoint begin at 0 with its first micro-batch. When a job ends, its metrics are exported once
    more, and then removed.

    Args:
        meter_provider: Receives the metrics. None (default): the global one.
        tracer_provider: Receives the traces. None (default): the global one.
        histograms: The exporter of ``meter_provider``, which adds the histograms of functions. None (default): they
            are not exported, because instruments of OpenTelemetry only take single values.
        per_subtask: Whether metrics of operators have an attribute for the subtask. Default: False, the sum or the
            slowest of all subtasks.
        per_split: Whether each split of a source has metrics of its own. Default: False. Sources such as files may
            have any number of splits.
        clock: The wall clock. None (default): the system clock.

    Raises:
        ConfigurationError: The SDK of OpenTelemetry is not installed.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        *,
        histograms: HistogramExporter | None = None,
        per_subtask: bool = False,
        per_split: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock, per_subtask=per_subtask, per_split=per_split)
        self._provider = metrics.get_meter_provider() if meter_provider is None else meter_provider
        self._meter = self._provider.get_meter("dsv2", __version__)
        self._tracer = trace.get_tracer("dsv2", __version__, tracer_provider)
        self._exports_histograms = histograms is not None
        self._instruments: dict[str, Metric] = {}
        self._warned: set[str] = set()
        self._baselines: dict[str, Mapping[_Place, float | HistogramProgress]] = {}  # by job
        self._changes = 0
        self._observed_after: tuple[int, Mapping[str, list[Observation]]] = (-1, {})
        self._batch_duration = self._meter.create_histogram(
            m.BATCH_DURATION.in_opentelemetry,
            m.BATCH_DURATION.unit,
            m.BATCH_DURATION.description,
            explicit_bucket_boundaries_advisory=BATCH_BUCKETS,
        )
        for metric in METRICS:
            if metric.kind in (MetricKind.COUNTER, MetricKind.GAUGE):
                self._create(metric)
        if histograms is not None:
            histograms.add_source(self._histograms)

    def on_started(self, job: JobHandle, plan: Plan) -> None:
        """Add a job."""
        self._baselines.pop(plan.job_name, None)
        super().on_started(job, plan)
        self._changes += 1

    def on_ended(self, job: JobHandle) -> None:
        """Export the metrics of a job once more, and remove it."""
        ended = [running for running in self.running() if running.handle is job]
        if isinstance(self._provider, SdkMeterProvider):
            self._provider.force_flush(_FLUSH_MILLIS)
        super().on_ended(job)
        self._changes += 1
        if job.status is JobStatus.FAILED:
            for running in ended:
                record_failure(self._tracer, running, self._clock.now_ms())

    def completed(self, job: RunningJob, before: JobProgress | None, batches: tuple[BatchProgress, ...]) -> None:
        """Create instruments for new metrics of functions, and record the micro-batches."""
        assert job.progress is not None
        if before is None:
            self._baselines[job.name] = _baseline(job, self._samples_of(job))
        self._changes += 1
        for sample in samples_of_functions(job.progress):
            self._create(sample.metric)
        for batch in batches:
            self._batch_duration.record(batch.duration_ms / 1000, {ATTRIBUTES["job_name"]: job.name})
            record_batch(self._tracer, job, before if len(batches) == 1 else None, batch)

    def _create(self, metric: Metric) -> None:
        """Create the instrument of ``metric``, unless there is one."""
        name = _name(metric)
        if metric.kind is MetricKind.HISTOGRAM and not self._exports_histograms:
            self._warn(name, "%s is not exported. Pass a HistogramExporter to OpenTelemetryListener.", metric)
            return
        first = self._instruments.setdefault(name, metric)
        if first is not metric:
            if (first.name, first.kind) != (metric.name, metric.kind):
                self._warn(f"{name} {metric}", "%s is not exported: another metric has its name. Rename it.", metric)
            return
        create: dict[MetricKind, Callable[..., object]] = {
            MetricKind.COUNTER: self._meter.create_observable_counter,
            MetricKind.GAUGE: self._meter.create_observable_gauge,
        }
        if metric.kind in create:
            create[metric.kind](name, [self._observe(name)], metric.unit, metric.description)

    def _warn(self, reason: str, text: str, metric: Metric) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            _LOG.warning(text, metric.description.removesuffix("."))

    def _observe(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            changes, observations = self._changes, self._observed_after
            if observations[0] != changes:  # once for all instruments
                observations = self._observed_after = changes, self._observed()
            return observations[1].get(name, ())

        return observe

    def _observed(self) -> Mapping[str, list[Observation]]:
        """The values of all instruments, by name."""
        found: dict[str, list[Observation]] = {}
        jobs = self.running()
        of_runs = (sample for job in jobs for sample in samples_of_run(job))
        for metric, labels, value in (*self.ends(), *of_runs, *self._since_start(jobs)):
            if not isinstance(value, HistogramProgress):
                found.setdefault(_name(metric), []).append(Observation(value, _attributes(labels)))
        return found

    def _since_start(self, jobs: Iterable[RunningJob]) -> Iterator[Sample]:
        """The samples of the progress of jobs. Counters and histograms count since the start of the run."""
        for job in jobs:
            if (baseline := self._baselines.get(job.name)) is None:
                continue  # the first micro-batch has just been completed
            for sample in self._samples_of(job):
                metric, labels, value = sample
                first = self._instruments.get(_name(metric), metric)
                if (first.name, first.kind) == (metric.name, metric.kind):
                    yield Sample(metric, labels, _since(baseline.get(_place(sample)), value))

    def _samples_of(self, job: RunningJob) -> Iterator[Sample]:
        return samples_of(job, **self._parts)

    def _histograms(self) -> list[NamedHistogram]:
        jobs = self.running()
        since = {job.name: job.started_at_ms * 1_000_000 for job in jobs}
        return [
            NamedHistogram(_name(metric), metric.description, _attributes(labels), value, since[labels["job_name"]])
            for metric, labels, value in self._since_start(jobs)
            if isinstance(value, HistogramProgress)
        ]


def _baseline(job: RunningJob, samples: Iterable[Sample]) -> Mapping[_Place, Any]:
    """The values before the run. What its first micro-batch has added is only known of records in and out."""
    assert job.progress is not None
    if job.progress.batch_id == 0:
        return {}
    values: dict[_Place, Any] = {_place(sample): sample.value for sample in samples if _continues(sample.metric)}
    seconds = job.progress.batches[-1].duration_ms / 1000 if job.progress.batches else 0.0
    for operator in job.progress.operators.values():
        labels = (("job_name", job.name), ("operator", operator.uid))
        for metric, rate in (
            (m.RECORDS_IN, operator.records_in_per_second),
            (m.RECORDS_OUT, operator.records_out_per_second),
        ):
            if (place := (metric.name, labels)) in values:
                values[place] -= round(rate * seconds)
    return values


def _continues(metric: Metric) -> bool:
    """Return whether the values of ``metric`` continue from the checkpoint."""
    return metric.kind in (MetricKind.COUNTER, MetricKind.HISTOGRAM) and metric is not m.USER_TIME


def _since(before: float | HistogramProgress | None, now: float | HistogramProgress) -> float | HistogramProgress:
    if before is None:
        return now
    if not isinstance(now, HistogramProgress):
        assert not isinstance(before, HistogramProgress)
        return now - before
    assert isinstance(before, HistogramProgress)
    if before.bounds != now.bounds:
        return now
    counts = tuple(after - earlier for earlier, after in zip(before.counts, now.counts, strict=True))
    return HistogramProgress(now.bounds, counts, now.sum - before.sum, now.min, now.max)


def _place(sample: Sample) -> _Place:
    return sample.metric.name, tuple(sample.labels.items())


def _name(metric: Metric) -> str:
    return _INVALID.sub("_", metric.in_opentelemetry)[:_LONGEST_NAME].lower()  # the SDK ignores case


def _attributes(labels: Mapping[str, str]) -> dict[str, str]:
    return {ATTRIBUTES[label]: value for label, value in labels.items()}
