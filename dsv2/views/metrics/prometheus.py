"""Metrics of jobs for Prometheus. Requires the extra ``dsv2[metrics]``."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from dsv2.base.clock import Clock
from dsv2.checks.arguments import check_whole_number
from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError
from dsv2.jobs.progress import HistogramProgress
from dsv2.version import __version__
from dsv2.views.metrics import definitions as m
from dsv2.views.metrics.definitions import METRICS, Metric, MetricKind, Sample
from dsv2.views.metrics.jobs import JobsListener, RunningJob
from dsv2.views.metrics.samples import samples_of, samples_of_run

require_client_library("prometheus_client", "metrics", "dsv2.views.metrics.prometheus")

import prometheus_client  # noqa: E402
from prometheus_client.metrics_core import (  # noqa: E402
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family  # noqa: E402
from prometheus_client.utils import floatToGoString  # noqa: E402

__all__ = ("PrometheusListener",)

_LOG = logging.getLogger(__name__)
_INVALID = re.compile(r"[^a-zA-Z0-9_]")
_SUFFIXES = {
    MetricKind.COUNTER: ("_total", "_created"),
    MetricKind.HISTOGRAM: ("_bucket", "_count", "_sum", "_created"),
}


class PrometheusListener(JobsListener):
    """Shows the metrics of running jobs to Prometheus. Add it to one or more environments.

    ``docs/metrics.md`` lists the metrics. All have the label ``job_name``, and those of an operator the label
    ``operator``, its uid. Counters continue from the checkpoint: they appear with the first micro-batch of a run, and
    count since the job first started. When a job ends, its metrics are removed.

    Args:
        port: Serve the metrics on this port, in a thread of the process. 0: a free port, see the attribute ``port``.
            None (default): only add them to ``registry``, which the program serves itself.
        host: The address of the server. Default: ``"127.0.0.1"``, which only this machine can reach. ``"0.0.0.0"``
            allows all machines.
        registry: The registry of prometheus-client to which the metrics are added. None (default): the one that it
            uses by default, which also has metrics of the process.
        per_subtask: Whether metrics of operators have a label ``subtask``. Default: False, the sum or the slowest of
            all subtasks.
        per_split: Whether each split of a source has metrics of its own. Default: False. Sources such as files may
            have any number of splits.
        clock: The wall clock. None (default): the system clock.

    Attributes:
        port: The port of the server. None: there is none.

    Raises:
        ConfigurationError: prometheus-client is not installed, the port cannot be used, or the registry already has a
            ``PrometheusListener``.

    Source: Flink ``PrometheusReporter``.
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        host: str = "127.0.0.1",
        registry: prometheus_client.CollectorRegistry | None = None,
        per_subtask: bool = False,
        per_split: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock, per_subtask=per_subtask, per_split=per_split)
        if port is not None:
            check_whole_number(port, "port", at_least=0)
        self._left_out: set[tuple[str, str]] = set()
        self._registry = prometheus_client.REGISTRY if registry is None else registry
        try:
            self._registry.register(self)
        except ValueError as error:
            raise ConfigurationError(
                "The registry of prometheus-client already has a PrometheusListener. Add that one to all environments, "
                "or give this one another registry."
            ) from error
        self.port: int | None = None
        try:
            if port is not None:
                self._server, self._thread = prometheus_client.start_http_server(port, host, self._registry)
                self.port = self._server.server_port
        except (OSError, OverflowError) as error:
            self._registry.unregister(self)
            raise ConfigurationError(_explain(host, port, error)) from error

    def __repr__(self) -> str:
        return "PrometheusListener()" if self.port is None else f"PrometheusListener({self.port})"

    def close(self) -> None:
        """Stop the server, and remove the metrics from the registry. A program that ends need not call it."""
        self._registry.unregister(self)
        if self.port is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self.port = None

    def describe(self) -> Iterator[Family]:
        """Called by the registry, for the names of the metrics."""
        return (_new_family(metric, ()) for metric in METRICS)

    def collect(self) -> Iterable[Family]:
        """Called by the registry for each scrape."""
        families = _Families(self._left_out)
        for sample in self.ends():
            families.add(sample)
        for job in self.running():
            for sample in self._of(job):
                families.add(sample)
        return families.all()

    def _of(self, job: RunningJob) -> Iterator[Sample]:
        labels = {"job_name": job.name}
        mode, bounded = job.plan.mode.value, str(job.is_bounded).lower()
        yield Sample(m.JOB, {**labels, "mode": mode, "bounded": bounded, "version": __version__}, 1)
        yield from samples_of_run(job)
        for operator in job.plan.operators:
            named = {"operator": operator.uid, "name": operator.name, "parallelism": str(operator.parallelism)}
            yield Sample(m.OPERATOR, {**labels, **named}, 1)
        yield Sample(m.BATCH_DURATION, labels, job.batch_duration)
        yield from samples_of(job, **self._parts)


def _explain(host: str, port: int | None, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"Port {port} of {host} is already in use. Choose another one, or 0 for any free port."
    return f"Port {port} of {host} cannot be used to serve metrics: {error}."


class _Families:
    """The samples of one scrape by metric. ``left_out``: Pairs of metrics whose names have been found to be equal."""

    def __init__(self, left_out: set[tuple[str, str]]) -> None:
        self._left_out = left_out
        self._owners: dict[str, Metric] = {}  # by the name of the samples
        self._families: dict[str, tuple[tuple[str, ...], Any]] = {}

    def all(self) -> list[Family]:
        return [family for _, family in self._families.values()]

    def add(self, sample: Sample) -> None:
        metric, labels, value = sample
        name = _name(metric)
        for taken in (name, *(f"{name}{suffix}" for suffix in _SUFFIXES.get(metric.kind, ()))):
            owner = self._owners.setdefault(taken, metric)
            if (owner.name, owner.kind) != (metric.name, metric.kind):
                self._leave_out(metric, owner)
                return
        if name not in self._families:
            self._families[name] = tuple(labels), _new_family(metric, labels)
        names, family = self._families[name]
        values = [labels[label] for label in names]
        if isinstance(value, HistogramProgress):
            cumulative = accumulate(value.counts)
            bounds = (*map(floatToGoString, value.bounds), "+Inf")
            family.add_metric(values, list(zip(bounds, cumulative, strict=True)), value.sum)
        else:
            family.add_metric(values, float(value))

    def _leave_out(self, metric: Metric, other: Metric) -> None:
        """Warn once that ``metric`` is not shown because its name is that of ``other``."""
        if (pair := (f"{metric.kind} {metric.name}", f"{other.kind} {other.name}")) not in self._left_out:
            self._left_out.add(pair)
            _LOG.warning(
                "%s is not shown to Prometheus, because its name there, %s, belongs to %s. Rename one of them.",
                metric.description.removesuffix("."),
                _name(metric),
                other.description.removesuffix("."),
            )


def _name(metric: Metric) -> str:
    """The name of the family, without the suffix of counters, which gauges of users cannot have either."""
    return _INVALID.sub("_", metric.in_prometheus).removesuffix("_total").removesuffix("_total")


def _new_family(metric: Metric, labels: Iterable[str]) -> Any:
    kinds = {MetricKind.COUNTER: CounterMetricFamily, MetricKind.HISTOGRAM: HistogramMetricFamily}
    return kinds.get(metric.kind, GaugeMetricFamily)(_name(metric), metric.description, labels=tuple(labels))
