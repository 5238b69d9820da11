"""The report of a subtask of an operator on a micro-batch."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dsv2.base.record_position import Offset, SplitName
from dsv2.runtime.report.metrics import HistogramParts
from dsv2.runtime.report.policy_rules import SKIPPED_COUNTERS
from dsv2.watermark.value_text import ShownValue


class ChannelReport(Struct, frozen=True, array_like=True):
    """A channel of an input. For the attributes see ``ChannelProgress``."""

    channel: int
    event_time: int | None = None
    watermarks: Mapping[str, ShownValue] = {}
    idle: bool = False
    ended: bool = False
    blocked_by: str | None = None
    blocked_since_ms: int | None = None
    records_held: int = 0


class InputReport(Struct, frozen=True, omit_defaults=True):
    """An input of a subtask. For the attributes see ``InputProgress``."""

    channel_count: int
    idle_count: int = 0
    ended_count: int = 0
    event_time: int | None = None
    watermarks: Mapping[str, ShownValue] = {}
    channels: list[ChannelReport] = []
    blocked: bool = False


class SubtaskReport(Struct, frozen=True, omit_defaults=True):
    """The report of a subtask. Reports travel with the rows of each micro-batch, so they should be small.

    Attributes:
        uid: The uid of the operator.
        subtask: The index of the subtask.
        records_in: Number of records received.
        outputs: Number of records emitted to each output.
        records_held: Number of records buffered behind aligned watermarks.
        watermarks: The last value delivered for each identifier.
        counters: The counters.
        gauges: The gauges.
        histograms: The histograms.
        keys: Number of keys with state.
        timers: Number of registered timers.
        event_time: The event time in ms. None: there is none yet.
        user_ns: The time in user code in the micro-batch, in ns.
        ended: Whether all inputs have ended.
        inputs: The inputs.
        skipped: The split and offset of the records of a source that ``skip_records`` has skipped.
        state_bytes: Size in bytes of the checkpointed value, on Spark. None: unknown.
        span: When the task began and ended the micro-batch, on Spark, in ms since the epoch.
    """

    uid: str
    subtask: int
    records_in: int = 0
    outputs: list[int] = []
    records_held: int = 0
    watermarks: Mapping[str, ShownValue] = {}
    counters: Mapping[str, int] = {}
    gauges: Mapping[str, bool | int | float] = {}
    histograms: Mapping[str, HistogramParts] = {}
    keys: int = 0
    timers: int = 0
    event_time: int | None = None
    user_ns: int = 0
    ended: bool = False
    inputs: list[InputReport] = []
    skipped: list[tuple[SplitName, Offset]] = []
    state_bytes: int | None = None
    span: tuple[int, int] | None = None

    @property
    def errors(self) -> int:
        """The number of callbacks that raised and were handled by the error policy."""
        return sum(self.counters.get(name, 0) for name in SKIPPED_COUNTERS)
