"""Watermark alignment: pauses splits that are too far ahead of the slowest source of their group.

Source: FLIP-182, FLIP-217; Flink ``SourceCoordinator``, ``SourceOperator.checkSplitWatermarkAlignment``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence, Set
from typing import Any

from dsv2.base.clock import Clock
from dsv2.errors import ContractError
from dsv2.graph import Operator, Plan
from dsv2.runtime.sources.readers import HeldSplit, ReaderState
from dsv2.sources import SplitEnumerator, SupportsPauseOrResumeSplits, WatermarkAlignment
from dsv2.watermark.event_time import LONG_MIN


class AlignmentBoard(ABC):
    """Shares the event time of the sources of one job."""

    def __init__(self, plan: Plan) -> None:
        self._members: dict[str, list[int]] = {}
        for operator in plan.operators:
            if operator.watermarks is not None and operator.watermarks.alignment is not None:
                self._members.setdefault(operator.watermarks.alignment.group, []).append(operator.id)

    def least(self, group: str) -> tuple[bool, int | None]:
        """Return whether all sources of ``group`` have reported, and the least event time in ms.

        The time is None if no source that is active has reported.
        """
        reports = [self._read(operator_id) for operator_id in self._members[group]]
        times = [time for has_reported, time in reports if has_reported and time is not None]
        return all(has_reported for has_reported, _ in reports), min(times, default=None)

    @abstractmethod
    def report(self, operator_id: int, time: int | None) -> None:
        """Report that a source has reached ``time`` (ms); None if it is idle or has ended."""

    @abstractmethod
    def _read(self, operator_id: int) -> tuple[bool, int | None]:
        """Return whether a source has reported, and its last report."""


class LocalBoard(AlignmentBoard):
    """For sources whose coordinators are in one process."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._times: dict[int, int | None] = {}

    def report(self, operator_id: int, time: int | None) -> None:
        self._times[operator_id] = time

    def _read(self, operator_id: int) -> tuple[bool, int | None]:
        return operator_id in self._times, self._times.get(operator_id)


class Aligner:
    """Pauses and resumes the splits of one source. Splits beyond the event time ``max_desired`` (ms) are paused."""

    def __init__(
        self,
        operator: Operator,
        alignment: WatermarkAlignment,
        board: AlignmentBoard,
        clock: Clock,
        max_desired: int | None,
    ) -> None:
        self._operator = operator
        self._alignment = alignment
        self._board = board
        self._clock = clock
        self._next_update = clock.now_ms()
        self.max_desired = max_desired
        self.waits_for_others = False
        """True if splits are paused because another source is behind."""
        self.resumes_soon = False
        """True if paused splits can resume at the next update of the group."""

    def align(self, readers: Sequence[ReaderState], enumerator: SplitEnumerator[Any, Any]) -> None:
        """Decide which splits are paused in the next micro-batch.

        Args:
            readers: The readers of the source.
            enumerator: The enumerator of the source.

        Raises:
            ContractError: A reader has several splits and the enumerator cannot pause single splits.
        """
        singly = enumerator.can_pause_splits
        if not singly and not self._alignment.allow_unaligned_splits:
            self._check_single(readers, enumerator)
        own = _least(split for reader in readers for split in reader.splits.values())
        self._board.report(self._operator.id, own)
        everyone, least = self._board.least(self._alignment.group)
        fresh = None if least is None else least + self._alignment.max_drift_ms
        now = self._clock.now_ms()
        if everyone and now >= self._next_update:
            self.max_desired, self._next_update = fresh, now + self._alignment.interval_ms
        ahead = _ahead(readers, self.max_desired, singly=singly)
        still_ahead = _ahead(readers, fresh, singly=singly)
        self._pause(readers, ahead, enumerator)
        self.waits_for_others = bool(ahead) and own is not None and least is not None and least < own
        self.resumes_soon = everyone and not ahead <= still_ahead

    def _check_single(self, readers: Sequence[ReaderState], enumerator: SplitEnumerator[Any, Any]) -> None:
        most = max(len(reader.splits) for reader in readers)
        if most > 1:
            raise ContractError(
                f"A reader has {most} splits to align, but {type(enumerator).__qualname__} cannot pause single splits. "
                f"Implement pause_or_resume_splits, or align whole readers only: "
                f"with_watermark_alignment(..., allow_unaligned_splits=True)."
            )

    def _pause(self, readers: Sequence[ReaderState], ahead: Set[str], enumerator: SplitEnumerator[Any, Any]) -> None:
        splits = [split for reader in readers for split in reader.splits.values()]
        to_pause = [split for split in splits if not split.paused and split.at.split_id in ahead]
        to_resume = [split for split in splits if split.paused and split.at.split_id not in ahead]
        for split in (*to_pause, *to_resume):
            split.paused = not split.paused
        if (to_pause or to_resume) and enumerator.can_pause_splits:
            assert isinstance(enumerator, SupportsPauseOrResumeSplits)
            enumerator.pause_or_resume_splits([split.at for split in to_pause], [split.at for split in to_resume])


def _ahead(readers: Sequence[ReaderState], max_desired: int | None, *, singly: bool) -> set[str]:
    """The ids of the splits beyond ``max_desired``: single splits, or all splits of a reader if not ``singly``."""
    if max_desired is None:
        return set()
    found: set[str] = set()
    for reader in readers:
        together = _least(reader.splits.values())
        for split_id, split in reader.splits.items():
            time = split.watermark if singly else together
            if time is not None and time > max_desired:
                found.add(split_id)
    return found


def _least(splits: Iterable[HeldSplit]) -> int | None:
    """The least event time of active splits, or None. A split without a watermark counts as ``LONG_MIN``."""
    times = [LONG_MIN if split.watermark is None else split.watermark for split in splits if not split.idle]
    return min(times, default=None)
