"""The splits of a source in the progress of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dsv2.jobs.progress import SplitProgress
from dsv2.runtime.sources.offsets import Report

MOST_SPLITS: Final = 256
"""Of a source with more splits, those with the least event time and those with the greatest lag are reported."""
_MOST_TEXT = 200


def event_times(reports: Iterable[Report]) -> dict[str, int | None]:
    """Return the event time of splits in the reports of readers, by split id."""
    return {split: time for report in reports for split, time in report["splits"].items()}


def with_event_times(splits: Sequence[SplitProgress], times: Mapping[str, int | None]) -> tuple[SplitProgress, ...]:
    """Return the splits with what readers have reported since, in a bounded number."""
    found = [
        replace(
            split,
            position=split.position[:_MOST_TEXT],
            event_time=_later(split.event_time, times.get(split.split)),
        )
        for split in splits
    ]
    if len(found) <= MOST_SPLITS:
        return tuple(found)
    slowest = sorted(found, key=_slowness)[: MOST_SPLITS // 2]
    chosen = {split.split for split in slowest}
    rest = sorted((split for split in found if split.split not in chosen), key=lambda split: -(split.lag or 0))
    most_behind = rest[: MOST_SPLITS - len(slowest)]
    return tuple(sorted([*slowest, *most_behind], key=lambda split: (split.subtask, split.split)))


def indexed_split(
    position: int, count: int | None, available: int | None, *, ended: bool, moved_at_ms: int | None
) -> SplitProgress:
    """Return the progress of a source that is read by index. All of its readers together have one split.

    Args:
        position: The number of records that have been read.
        count: The number of records that there are. None: the source is unbounded.
        available: The number of records that its rate allows to read. None: it has no rate.
        ended: Whether the source has ended.
        moved_at_ms: When it was last read, in ms.
    """
    limits = [limit for limit in (count, available) if limit is not None]
    lag = max(0, min(limits) - position) if limits else None
    return SplitProgress("0", 0, str(position), lag, ended=ended, moved_at_ms=moved_at_ms)


def _later(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


def _slowness(split: SplitProgress) -> tuple[bool, bool, int]:
    return split.idle or split.ended, split.event_time is not None, split.event_time or 0
