"""The snapshot of the build side of a temporal join: when it is complete, and what happens if that takes too long."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from dsv2.errors import ContractError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join.modes import OnSnapshotTimeout, TemporalMode
from dsv2.model.context import RuntimeContext
from dsv2.watermark import Watermark, WatermarkDeclaration
from dsv2.watermark.event_time import LONG_MAX

PROBES_WAITING: Final = "probe_records_waiting"
"""The counter of probe records that wait for the snapshot."""
_TIMEOUTS = "snapshot_timeouts"

SIGNALS: Collection[WatermarkDeclaration] = (
    EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION,
    EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION,
)
"""Declared so that ``on_watermark`` receives them, even if a source emits idleness without declaring it."""

_logger = logging.getLogger(__name__)


def completes(watermark: Watermark, mode: TemporalMode) -> bool:
    """Return whether the snapshot is complete with a watermark of the build side."""
    if EventTimeExtension.is_event_time_watermark(watermark):
        complete_at = mode.complete_at
        return bool(watermark.value >= (LONG_MAX if complete_at is None else complete_at))
    if EventTimeExtension.is_idle_status_watermark(watermark):
        return bool(watermark.value) and mode.complete_when_idle
    return EventTimeExtension.is_use_processing_time_watermark(watermark)


def holds_time_back(watermark: Watermark) -> bool:
    """Return whether a watermark of the build side is not forwarded until the snapshot is complete."""
    return EventTimeExtension.is_event_time_watermark(watermark) or EventTimeExtension.is_idle_status_watermark(
        watermark
    )


def time_out(mode: TemporalMode, keys: int, warn: bool, ctx: RuntimeContext) -> None:
    """Report that probe records of ``keys`` have waited too long.

    Raises:
        ContractError: The job shall fail.
    """
    if mode.on_timeout is OnSnapshotTimeout.FAIL:
        raise ContractError(_message(mode, ctx))
    ctx.metric_group.counter(_TIMEOUTS).inc(keys)
    if warn:
        _logger.warning("%s: %s", ctx.task_info.task_name, _message(mode, ctx))


def _message(mode: TemporalMode, ctx: RuntimeContext) -> str:
    return (
        f"{ctx.metric_group.counter(PROBES_WAITING).count} probe records in subtask "
        f"{ctx.task_info.index_of_this_subtask} wait for the snapshot of the build side, some for "
        f"{timedelta(milliseconds=mode.timeout)} or longer, but the build side has not signaled the end of the "
        f"snapshot. To signal it, every subtask of its source (or of a function after it) must emit the watermark "
        f"EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION.new_watermark(True), or end. Idle subtasks must "
        f"emit it as well. Or pass complete_at or complete_when_idle to JoinMode.temporal. If the snapshot takes "
        f"longer, increase snapshot_timeout."
    )
