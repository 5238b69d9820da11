"""The split of a source that holds a watermark back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dsv2.jobs.progress import SplitProgress
from dsv2.jobs.summary.splits import active_splits
from dsv2.jobs.watermark_report.model import Cause
from dsv2.plan_view.model import OperatorView


def split_for_time(splits: Sequence[SplitProgress]) -> SplitProgress | None:
    """The split whose event time holds its reader back: the least, and before that one without event time."""
    return min(active_splits(splits), key=_rank, default=None)


def split_for_records(splits: Sequence[SplitProgress]) -> SplitProgress | None:
    """The split that explains best why no records arrive: a backlog, otherwise what has been read last."""
    live = [split for split in active_splits(splits) if not split.paused] or active_splits(splits)
    return max(live, key=lambda split: (split.lag or 0, split.moved_at_ms or 0), default=None)


def cause_in_split(split: SplitProgress, recent_ms: int) -> Cause:
    """Return why a split holds a watermark back. ``recent_ms``: If it has moved since then, it has new records."""
    if split.paused:
        return Cause.PAUSED_SPLIT
    if split.lag:
        return Cause.BACKLOG
    has_new = split.moved_at_ms is not None and split.moved_at_ms >= recent_ms
    return Cause.NOT_EMITTED if has_new else Cause.QUIET_SPLIT


def slowest_in_group(sources: Iterable[tuple[OperatorView, Sequence[SplitProgress]]]) -> OperatorView | None:
    """Return the source that is furthest behind in event time. Idle splits do not count."""
    found = [(source, split) for source, splits in sources if (split := split_for_time(splits)) is not None]
    return min(found, key=lambda pair: _rank(pair[1]), default=(None, None))[0]


def has_no_records(splits: Sequence[SplitProgress]) -> bool:
    """Return whether a source with these splits has not had any record."""
    return not any(split.moved_at_ms is not None or split.lag for split in splits)


def _rank(split: SplitProgress) -> tuple[bool, int, int]:
    return split.event_time is not None, split.event_time or 0, split.moved_at_ms or 0
