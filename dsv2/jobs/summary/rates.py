"""Records per second of the clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from dsv2.jobs.progress import BatchProgress
from dsv2.jobs.summary.splits import RECENT_MS

Counts = tuple[int, int]


def span_ms(before: BatchProgress | None, batch: BatchProgress) -> float:
    """The time since the micro-batch before ended, in ms: a pause and the micro-batch itself."""
    if before is None:
        return batch.duration_ms
    return batch.duration_ms + max(0.0, batch.started_at_ms - before.started_at_ms - before.duration_ms)


def spans_ms(batches: Sequence[BatchProgress]) -> Iterator[float]:
    """The same for each of several micro-batches."""
    if batches:
        yield span_ms(None, batches[0])
    for before, batch in pairwise(batches):
        yield span_ms(before, batch)


class Rates:
    """Records in and out per second of each operator, in the micro-batches of this run that cover ten seconds."""

    def __init__(self) -> None:
        self._last: BatchProgress | None = None
        self._recent = deque[tuple[float, Mapping[str, Counts]]]()
        self._ms = 0.0
        self._sums: dict[str, Counts] = {}

    def add(self, batch: BatchProgress, increases: Mapping[str, Counts]) -> None:
        """Add a micro-batch. ``increases``: The records in and out of each operator in it, by uid."""
        span = span_ms(self._last, batch)
        self._last = batch
        self._recent.append((span, increases))
        self._count(span, increases, 1)
        while self._ms - self._recent[0][0] >= RECENT_MS:
            self._count(*self._recent.popleft(), -1)

    def _count(self, span: float, increases: Mapping[str, Counts], sign: int) -> None:
        self._ms += sign * span
        for uid, (came, went) in increases.items():
            before = self._sums.get(uid, (0, 0))
            self._sums[uid] = before[0] + sign * came, before[1] + sign * went

    def per_second(self) -> dict[str, tuple[float, float]]:
        """The rates by uid."""
        if self._ms <= 0:
            return {}
        return {uid: (came * 1000 / self._ms, went * 1000 / self._ms) for uid, (came, went) in self._sums.items()}
