"""Pressure: which operators a job waits for.

A micro-batch ends when all operators have processed its records, so there are no full buffers that would show where a
job is slow, as in Flink. Three signs take their place, over the last micro-batches:

* **busy**: the share of the time of the micro-batches that the busiest subtask of an operator has spent in callbacks.
  An operator that is busy most of the time limits the throughput: more subtasks, or faster code, help.
* **holding**: an operator buffers records behind an aligned watermark, and their number grows.
* **falling behind**: the lag of a source grows and is more than a micro-batch reads, so the job reads less than
  arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from dsv2.jobs.summary.history import Moment, OperatorMoment

WINDOW = 5
"""The number of micro-batches that pressure is determined from."""

_BUSY, _HIGH = 0.3, 0.6


class Level(Enum):
    """A level of pressure. UNKNOWN: no micro-batch has been observed. IDLE: no records have arrived."""

    UNKNOWN = "unknown"
    IDLE = "idle"
    LOW = "low"
    BUSY = "busy"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Pressure:
    """The pressure on an operator.

    Attributes:
        level: How much.
        busy: The share of the time that its busiest subtask was busy, from 0 to 1. None: unknown.
        reasons: What is wrong, in words.
    """

    level: Level
    busy: float | None = None
    reasons: Sequence[str] = field(default=())


def pressure_of(uid: str, history: Sequence[Moment]) -> Pressure:
    """Return the pressure on the operator ``uid`` in the last micro-batches of ``history``."""
    window = [moment for moment in history[-WINDOW:] if uid in moment.operators]
    if not window:
        return Pressure(Level.UNKNOWN)
    moments = [moment.operators[uid] for moment in window]
    busy = _busy_share([(one.busy_ms, moment.duration_ms) for one, moment in zip(moments, window, strict=True)])
    reasons = [*_holding(moments), *_falling_behind(moments)]
    if busy is not None and busy >= _BUSY:
        reasons.append(f"its busiest subtask was in callbacks for {busy:.0%} of the time")
    if (busy is not None and busy >= _HIGH) or any(_falling_behind(moments)):
        return Pressure(Level.HIGH, busy, reasons)
    if reasons:
        return Pressure(Level.BUSY, busy, reasons)
    has_worked = any(moment.records_in or moment.records_out for moment in moments)
    return Pressure(Level.LOW if has_worked else Level.IDLE, busy, reasons)


def _busy_share(times: Sequence[tuple[float | None, float]]) -> float | None:
    """The share of the duration of micro-batches that an operator was busy, by these two times of each, in ms."""
    known = [(busy_ms, duration_ms) for busy_ms, duration_ms in times if busy_ms is not None]
    total = sum(duration_ms for _, duration_ms in known)
    return min(1.0, sum(busy_ms for busy_ms, _ in known) / total) if total > 0 else None


def _holding(moments: Sequence[OperatorMoment]) -> list[str]:
    held = moments[-1].records_held
    if held <= moments[0].records_held or len(moments) < 2:
        return []
    return [f"it holds {held:,} records behind an aligned watermark, and more in each micro-batch"]


def _falling_behind(moments: Sequence[OperatorMoment]) -> list[str]:
    lags = [moment.lag for moment in moments if moment.lag is not None]
    if len(lags) < WINDOW or not all(later > earlier for earlier, later in pairwise(lags)):
        return []
    if lags[-1] <= max(moment.records_out for moment in moments):  # the next micro-batch reads them
        return []
    return [f"its lag grows: {lags[-1]:,} records are available and not read"]
