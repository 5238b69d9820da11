"""The progress of a job: counts, times and watermarks per operator, subtask, channel, split and micro-batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

WatermarkProgress: TypeAlias = int | float | bool | str
"""The value of a watermark. Those that are neither numbers nor booleans are texts, such as ``{a, b}`` for a set."""


@dataclass(frozen=True, slots=True)
class ChannelProgress:
    """One channel of an input of a subtask: what one subtask upstream has sent to it.

    Attributes:
        channel: The index of the channel.
        event_time: The event time that arrived last, in ms. None: there was none.
        watermarks: The value that arrived last for each identifier.
        idle: Whether the channel is idle.
        ended: Whether its input has ended.
        moved_at_ms: When event time, a watermark or the status last changed: the time of that micro-batch, in ms
            since the epoch. None: never.
        values_moved_at_ms: The same for each identifier, event time (``BUILTIN_API_EVENT_TIME``) included.
        blocked_by: The identifier of the aligned watermark or barrier that blocks the channel. None: it is not blocked.
        blocked_since_ms: When a barrier has blocked it, in ms since the epoch. None: it is not blocked by a barrier.
        records_held: Number of records of the channel that wait behind it.
    """

    channel: int
    event_time: int | None = None
    watermarks: Mapping[str, WatermarkProgress] = field(default_factory=dict)
    idle: bool = False
    ended: bool = False
    moved_at_ms: int | None = None
    values_moved_at_ms: Mapping[str, int] = field(default_factory=dict)
    blocked_by: str | None = None
    blocked_since_ms: int | None = None
    records_held: int = 0


@dataclass(frozen=True, slots=True)
class InputProgress:
    """One input of a subtask.

    Attributes:
        input: The index of the input.
        sender: The uid of the operator upstream.
        channel_count: The number of channels.
        idle_count: How many of them are idle.
        ended_count: How many of them have ended.
        event_time: The combined event time in ms. None: there is none yet.
        watermarks: The combined value for each identifier.
        channels: Details of the channels. With more than 16 channels, only of those that hold a watermark back.
        blocked: Whether the input waits for the broadcast side.
    """

    input: int
    sender: str
    channel_count: int
    idle_count: int = 0
    ended_count: int = 0
    event_time: int | None = None
    watermarks: Mapping[str, WatermarkProgress] = field(default_factory=dict)
    channels: tuple[ChannelProgress, ...] = ()
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class SubtaskProgress:
    """One subtask of an operator, since the job first started.

    Attributes:
        subtask: Its index.
        records_in: Number of records received.
        records_out: Number of records emitted.
        outputs: The same for each output, side outputs last. 0: nothing reads it.
        records_held: Number of records buffered behind aligned watermarks.
        late_records: Number of records dropped because they were late.
        errors: Number of callbacks that raised and were handled by the error policy.
        user_time_ms: Time in the callbacks of the function, in ms, since the start of this run. In a chain it includes
            operators chained downstream.
        state_bytes: Size in bytes of its checkpointed value, on Spark. The first operator of a chain reports it. None:
            unknown.
        keys: Number of keys with state. In windows, of pairs of a key and a window.
        timers: Number of registered timers, in event time and in processing time.
        event_time: Its event time in ms. None: there is none yet.
        watermarks: The last value delivered for each identifier.
        ended: Whether all inputs have ended.
        inputs: Its inputs.
    """

    subtask: int
    records_in: int = 0
    records_out: int = 0
    outputs: tuple[int, ...] = ()
    records_held: int = 0
    late_records: int = 0
    errors: int = 0
    user_time_ms: float = 0.0
    state_bytes: int | None = None
    keys: int = 0
    timers: int = 0
    event_time: int | None = None
    watermarks: Mapping[str, WatermarkProgress] = field(default_factory=dict)
    ended: bool = False
    inputs: tuple[InputProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """One split of a source.

    Attributes:
        split: The id of the split, such as ``topic-3``.
        subtask: The reader that it is assigned to.
        position: The next position to read, in the words of the source.
        lag: Number of records that are available and not read. None: unknown.
        event_time: Its watermark in ms. None: there is none yet.
        idle: Whether it is idle.
        paused: Whether watermark alignment has paused it.
        ended: Whether it has been read to its end.
        moved_at_ms: When its position last changed: the time of that micro-batch, in ms since the epoch. None: never.
    """

    split: str
    subtask: int
    position: str = ""
    lag: int | None = None
    event_time: int | None = None
    idle: bool = False
    paused: bool = False
    ended: bool = False
    moved_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One micro-batch.

    Attributes:
        batch_id: Its id.
        started_at_ms: When it began, in ms since the epoch.
        duration_ms: How long it took.
        phases: The time in ms of each phase, in order: ``planning``, ``source``, ``level 1`` and so on, ``sinks``,
            ``commit``. Phases that run at the same time on the cluster can add up to more than the duration.
        records_in: Number of records read from sources.
        records_out: Number of records written to sinks.
    """

    batch_id: int
    started_at_ms: int
    duration_ms: float
    phases: Mapping[str, float] = field(default_factory=dict)
    records_in: int = 0
    records_out: int = 0


@dataclass(frozen=True, slots=True)
class HistogramProgress:
    """A histogram of a function.

    Attributes:
        bounds: The inclusive upper bounds of the buckets, ascending.
        counts: The number of values in each bucket. A last one counts the values above all bounds.
        sum: The sum of the values.
        min: The smallest value. None: there are no values.
        max: The largest value. None: there are no values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0
    min: float | None = None
    max: float | None = None

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def quantile(self, fraction: float) -> float | None:
        """Estimate the value below which ``fraction`` of the values lie, such as 0.95. None: there are no values.

        Values are assumed to be spread evenly within their bucket.
        """
        if self.min is None or self.max is None:
            return None
        below, wanted = 0, fraction * self.count
        for lower, upper, count in zip((self.min, *self.bounds), (*self.bounds, self.max), self.counts, strict=True):
            if count and below + count >= wanted:
                least, most = max(lower, self.min), min(upper, self.max)
                return least + (most - least) * max(0.0, wanted - below) / count
            below += count
        return self.max


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """The progress of one operator since the job first started, over all subtasks.

    Attributes:
        uid: The uid of the operator.
        name: The name of the operator.
        records_in: Number of records received.
        records_out: Number of records emitted.
        records_held: Number of records buffered behind aligned watermarks.
        watermarks: For each identifier the last value delivered in each subtask, or None if there was none.
        counters: Counters, summed over the subtasks.
        gauges: Gauges, summed over the subtasks.
        histograms: Histograms, over all subtasks.
        state_bytes: Size in bytes of the checkpointed value of the largest subtask, in streaming jobs on Spark. None:
            unknown. The operators of a chain share one value, which the first of them reports.
        records_in_per_second: Records received per second of the clock, in the last micro-batches of this run that
            cover ten seconds.
        records_out_per_second: Records emitted, likewise.
        subtasks: Its subtasks that have reported, by index.
        splits: For a source, its splits.
    """

    uid: str
    name: str
    records_in: int = 0
    records_out: int = 0
    records_held: int = 0
    watermarks: Mapping[str, tuple[WatermarkProgress | None, ...]] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, HistogramProgress] = field(default_factory=dict)
    state_bytes: int | None = None
    records_in_per_second: float = 0.0
    records_out_per_second: float = 0.0
    subtasks: tuple[SubtaskProgress, ...] = ()
    splits: tuple[SplitProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job after a micro-batch.

    Attributes:
        batch_id: The last completed micro-batch, as sinks number it. -1: none has completed since the program started,
            also after a restart.
        operators: The progress of each operator by uid.
        batches: The last micro-batches, the newest last.
        job_name: The name given to ``execute``.
        restarts: How often the local runtime has restarted the job since the program started.
    """

    batch_id: int
    operators: Mapping[str, OperatorProgress]
    batches: tuple[BatchProgress, ...] = ()
    job_name: str = ""
    restarts: int = 0
