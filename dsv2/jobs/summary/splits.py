"""The status of splits, and the one that holds event time back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dsv2.jobs.progress import JobProgress, SplitProgress

RECENT_MS: Final = 10_000
"""The time within which a split that moves has moved. If micro-batches take longer: within two of them."""


def moved_lately_ms(progress: JobProgress, now_ms: int) -> int:
    """Return the time since which something that is moving has moved, in ms since the epoch."""
    last = progress.batches[-1].duration_ms if progress.batches else 0.0
    return now_ms - max(RECENT_MS, 2 * int(last))


def status_of(split: SplitProgress) -> str:
    """Return ``ended``, ``paused``, ``idle`` or ``active``."""
    if split.ended:
        return "ended"
    if split.paused:
        return "paused"
    return "idle" if split.idle else "active"


def active_splits(splits: Sequence[SplitProgress]) -> list[SplitProgress]:
    """Return the splits that are neither idle nor ended, so that they hold event time back."""
    return [split for split in splits if not (split.idle or split.ended)]


def trouble_with(split: SplitProgress, splits: Sequence[SplitProgress], progress: JobProgress) -> str:
    """Return how a split holds the event time of its source back; "" if it does not.

    Args:
        split: The split.
        splits: All splits of the source.
        progress: The progress of the job.
    """
    active = active_splits(splits)
    times = [one.event_time for one in active if one.event_time is not None]
    if split not in active or split.paused or len(active) < 2 or not times:
        return ""
    if split.event_time is None:
        return "has no event time yet, so it holds back the others"
    moved = max((one.moved_at_ms for one in splits if one.moved_at_ms is not None), default=None)
    if moved is None or split.event_time != min(times) or min(times) == max(times):
        return ""
    stands_still = split.moved_at_ms is None or split.moved_at_ms < moved_lately_ms(progress, moved)
    return "holds event time back: it does not move, while others do" if stands_still else ""
