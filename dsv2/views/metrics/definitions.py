"""The metrics of dsv2: their names, units and labels in Prometheus and in OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from dsv2.jobs.progress import HistogramProgress


class MetricKind(Enum):
    """The type of a metric. INFO has the constant value 1; its labels carry the information."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


_PROMETHEUS_UNITS = {"s": "_seconds", "By": "_bytes"}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: Its name without the prefix ``dsv2``, in parts that are separated by dots.
        kind: Its type.
        unit: Its unit in UCUM. Annotations such as ``{record}`` are for the reader only.
        description: What it measures.
        labels: The labels of its samples, as in Prometheus. ``ATTRIBUTES`` has their names in OpenTelemetry.
        per_subtask: Whether it can be reported for each subtask, with the label ``subtask``.
    """

    name: str
    kind: MetricKind
    unit: str
    description: str
    labels: tuple[str, ...]
    per_subtask: bool = False

    @property
    def in_prometheus(self) -> str:
        """The name of its samples in Prometheus. Those of a histogram also have a suffix such as ``_bucket``."""
        suffix = {MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}.get(self.kind, "")
        return f"dsv2_{self.name.replace('.', '_')}{_PROMETHEUS_UNITS.get(self.unit, '')}{suffix}"

    @property
    def in_opentelemetry(self) -> str:
        """The name of its instrument in OpenTelemetry."""
        return f"dsv2.{self.name}"


Value: TypeAlias = float | HistogramProgress


class Sample(NamedTuple):
    """The value of a metric. ``labels``: Those of the metric by name, and ``subtask`` for values of one subtask."""

    metric: Metric
    labels: Mapping[str, str]
    value: Value


ATTRIBUTES: Final = {
    "bounded": "dsv2.job.bounded",
    "input": "dsv2.input.index",
    "job_name": "dsv2.job.name",
    "mode": "dsv2.job.mode",
    "name": "dsv2.operator.name",
    "operator": "dsv2.operator.uid",
    "outcome": "dsv2.error.outcome",
    "parallelism": "dsv2.operator.parallelism",
    "phase": "dsv2.batch.phase",
    "split": "dsv2.split.id",
    "state": "dsv2.state",
    "status": "dsv2.job.status",
    "subtask": "dsv2.subtask.index",
    "version": "dsv2.version",
    "watermark": "dsv2.watermark.identifier",
}
"""The attribute of OpenTelemetry for each label of Prometheus."""

BATCH_BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""The buckets of the duration of micro-batches, in seconds."""

_COUNTER, _GAUGE, _HISTOGRAM, _INFO = MetricKind
_defined: list[Metric] = []


def _metric(
    name: str, kind: MetricKind, unit: str, description: str, *labels: str, per_subtask: bool = False
) -> Metric:
    """Define a metric. ``labels``: Its labels in addition to the job, and to the operator if it is about one."""
    of_all = ("job_name",) if name.startswith(("job", "batch")) else ("job_name", "operator")
    _defined.append(Metric(name, kind, unit, description, (*of_all, *labels), per_subtask))
    return _defined[-1]


JOB = _metric("job", _INFO, "", "A running job.", "mode", "bounded", "version")
JOB_START_TIME = _metric("job.start_time", _GAUGE, "s", "When this process started the job, as a Unix time.")
JOB_ENDS = _metric(
    "job.ends", _COUNTER, "{job}", "How often the job has ended in this process: finished, stopped or failed.", "status"
)
JOB_RESTARTS = _metric(
    "job.restarts", _COUNTER, "{restart}", "How often the local runtime has restarted the job after a failure."
)
BATCH_DURATION = _metric("batch.duration", _HISTOGRAM, "s", "Durations of micro-batches in this run.")
BATCH_PHASE_TIME = _metric(
    "batch.phase_time", _COUNTER, "s", "Time in each phase of micro-batches in this run.", "phase"
)
BATCH_END_TIME = _metric("batch.end_time", _GAUGE, "s", "When the last micro-batch was complete, as a Unix time.")
BATCH_ID = _metric("batch.id", _GAUGE, "", "The id of the last complete micro-batch.")
OPERATOR = _metric("operator", _INFO, "", "An operator of a running job.", "name", "parallelism")
RECORDS_IN = _metric("operator.records_in", _COUNTER, "{record}", "Records received.", per_subtask=True)
RECORDS_OUT = _metric("operator.records_out", _COUNTER, "{record}", "Records emitted.", per_subtask=True)
LATE_RECORDS = _metric(
    "operator.late_records", _COUNTER, "{record}", "Records dropped because they were late.", per_subtask=True
)
USER_TIME = _metric(
    "operator.user_time",
    _COUNTER,
    "s",
    "Time in the callbacks of the function, and of those chained behind it, in all subtasks.",
    per_subtask=True,
)
ERRORS = _metric(
    "operator.errors",
    _COUNTER,
    "{error}",
    "Errors that the error policy has handled: retried, skipped or dead_lettered.",
    "outcome",
)
RECORDS_HELD = _metric(
    "operator.records_held", _GAUGE, "{record}", "Records buffered behind aligned watermarks.", per_subtask=True
)
KEYS = _metric("operator.keys", _GAUGE, "{key}", "Keys with state.", per_subtask=True)
TIMERS = _metric("operator.timers", _GAUGE, "{timer}", "Registered timers.", per_subtask=True)
STATE_SIZE = _metric(
    "operator.state_size",
    _GAUGE,
    "By",
    "State of all subtasks on Spark. The first operator of a chain reports it.",
    per_subtask=True,
)
LARGEST_STATE_SIZE = _metric("operator.largest_state_size", _GAUGE, "By", "State of the largest subtask on Spark.")
EVENT_TIME = _metric(
    "operator.event_time",
    _GAUGE,
    "s",
    "Event time of the slowest active subtask, as a Unix time. -9223372036854775.808: it has none yet.",
    per_subtask=True,
)
WATERMARK = _metric(
    "operator.watermark",
    _GAUGE,
    "",
    "The last value of a watermark, the lowest of all subtasks. 1 is true, 0 is false.",
    "watermark",
)
CHANNELS = _metric(
    "input.channels",
    _GAUGE,
    "{channel}",
    "Channels of an input in all subtasks: active, idle or ended.",
    "input",
    "state",
)
RECORDS_LAG = _metric(
    "source.records_lag", _GAUGE, "{record}", "Records that are available and not read, of the splits that report it."
)
SPLITS = _metric("source.splits", _GAUGE, "{split}", "Splits of a source: active, idle, paused or ended.", "state")
SOURCE_EVENT_TIME = _metric(
    "source.event_time",
    _GAUGE,
    "s",
    "Event time of the slowest active split, as a Unix time. -9223372036854775.808: it has none yet.",
)
SPLIT_RECORDS_LAG = _metric(
    "split.records_lag", _GAUGE, "{record}", "Records of a split that are available and not read.", "split"
)
SPLIT_EVENT_TIME = _metric("split.event_time", _GAUGE, "s", "Event time of a split, as a Unix time.", "split")

METRICS: Final = tuple(_defined)
"""All metrics but those of functions, whose names users choose."""
