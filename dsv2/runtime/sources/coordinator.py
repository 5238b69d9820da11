"""Coordinates a source with splits on the driver: plans each micro-batch from one offset to the next."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from dsv2.base.clock import Clock
from dsv2.errors import ContractError, Dsv2Error, JobError
from dsv2.graph import Operator
from dsv2.jobs.progress import SplitProgress
from dsv2.runtime.report.failure import NOT_OF_THE_USER
from dsv2.runtime.sources.adaptive_limit import AdaptiveLimit
from dsv2.runtime.sources.alignment import Aligner, AlignmentBoard
from dsv2.runtime.sources.offsets import BEFORE_START, Report, SourceOffset, content, failures_in, replays_in
from dsv2.runtime.sources.readers import HeldSplit, Readers
from dsv2.sources import (
    Portion,
    ReaderInfo,
    Serializer,
    Source,
    SplitEnumerator,
    SupportsSplitReassignmentOnRecovery,
)


class SourceCoordinator:
    """Plans the micro-batches of one source (Flink ``SourceCoordinator``).

    Args:
        source: The source.
        operator: Its operator in the plan.
        clock: The wall clock.
        board: Shares event time between aligned sources. None: sources are not aligned.
        limited: Whether the source's own limit applies.
        adaptive: An additional limit, if micro-batches have a target duration.
    """

    def __init__(
        self,
        source: Source[Any, Any, Any],
        operator: Operator,
        clock: Clock,
        board: AlignmentBoard | None = None,
        *,
        limited: bool = True,
        adaptive: AdaptiveLimit | None = None,
    ) -> None:
        self._source = source
        self._operator = operator
        self._strategy = operator.watermarks
        self._clock = clock
        self._splits: Serializer[Any] = source.split_serializer
        self._states: Serializer[Any] = source.enumerator_state_serializer
        self._board = board
        self._limited = limited
        self._adaptive = adaptive
        self._offset: SourceOffset | None = None
        self._aligner: Aligner | None = None
        self._readers: Readers
        self._enumerator: SplitEnumerator[Any, Any]

    def next(
        self, offset: SourceOffset, limit: int | None = None, *, refresh: bool = True, reports: Iterable[Report] = ()
    ) -> SourceOffset:
        """Return the end of the micro-batch that starts at ``offset``; ``offset`` itself if there is nothing new.

        Args:
            offset: The end of the previous micro-batch.
            limit: The maximum size of the micro-batch in the source's unit. The source's own limit may be lower.
            refresh: Whether to discover new data.
            reports: Reports of readers. Only those of the previous micro-batch count.

        Raises:
            JobError: The source failed on the driver.
        """
        if self._adaptive is not None:
            self._adaptive.resume(offset.get("limit", 1.0))
            self._adaptive.measure()
        if offset != self._offset:
            self._start(offset)
            refresh = True
        self._readers.limit_per_batch = self._adaptive_limit()
        batch = offset["batch"] + 1
        for reader in self._readers.states:
            reader.begin_batch()
        self._readers.replay(replays_in(offset))
        with self._calling("refresh" if refresh else "hand_out"):
            (self._enumerator.refresh if refresh else self._enumerator.hand_out)()
        latest = [report for report in reports if report["batch"] == offset["batch"]]
        self._readers.learn(latest)
        if self._aligner is not None:
            with self._calling("pause_or_resume_splits"):
                self._aligner.align(self._readers.states, self._enumerator)
        size = self._plan(self._least_limit(limit, self._adaptive_limit()), batch)
        now_ms = self._clock.now_ms()
        for reader in self._readers.states:
            reader.end_batch(batch, now_ms, self._strategy)
        there = self._snapshot(batch, now_ms, failures_in(offset, latest))
        if content(there) == content(offset) and not self._readers.has_signals:
            return offset
        self._offset = there
        if self._adaptive is not None:
            self._adaptive.begin(size, self._enumerator.least_per_batch)
        return there

    @property
    def ended(self) -> bool:
        """True if all readers end at or before the last planned offset."""
        return self._offset is not None and all(reader.ended is not None for reader in self._readers.states)

    @property
    def is_aligned(self) -> bool:
        """True if its splits may be paused and resumed."""
        return self._aligner is not None

    @property
    def waits_for_others(self) -> bool:
        """True if this source waits for another source to catch up."""
        return self._aligner is not None and self._aligner.waits_for_others

    @property
    def resumes_soon(self) -> bool:
        """True if paused splits can resume at the next update of the alignment group."""
        return self._aligner is not None and self._aligner.resumes_soon

    @property
    def has_more_for_certain(self) -> bool:
        """True if a later offset is certain to come, so that a job with ``available_now`` must wait for it."""
        ends = self._source.bounded and not self.ended and not self.waits_for_others
        return ends or self.resumes_soon

    @property
    def positions(self) -> list[Any]:
        """The splits that readers hold, at their positions after the last planned micro-batch."""
        return [held.at for held in self._readers.all_held()]

    def splits(self) -> list[SplitProgress]:
        """Return the progress of the splits as of the last planned micro-batch; their event time is that before it."""
        if self._offset is None:
            return []
        describe = self._source.describe_position
        with self._calling("lag or describe_position"):
            return [
                SplitProgress(
                    held.at.split_id,
                    subtask,
                    describe(held.at),
                    0 if held.last else self._enumerator.lag(held.at),
                    held.watermark,
                    held.idle,
                    held.paused,
                    held.last,
                    held.moved_ms,
                )
                for subtask, reader in enumerate(self._readers.states)
                for held in reader.splits.values()
            ]

    def wait(self, timeout: timedelta) -> bool | None:
        """Wait until the source has something to read; see ``SplitEnumerator.wait``.

        None also before ``next``: a run that repeats a micro-batch has planned none.
        """
        if self._offset is None:
            return None
        with self._calling("wait"):
            return self._enumerator.wait([held.at for held in self._readers.all_held() if not held.paused], timeout)

    def commit(self, offset: SourceOffset) -> None:
        """Notify the enumerator that everything before ``offset`` is committed."""
        if self._offset is not None:
            splits = [self._splits.from_json(split["at"]) for reader in offset["readers"] for split in reader["splits"]]
            with self._calling("notify_checkpoint_complete"):
                self._enumerator.notify_checkpoint_complete(splits)

    def close(self) -> None:
        """Close the enumerator, if there is one."""
        if self._offset is not None:
            self._offset = None
            with self._calling("close"):
                self._enumerator.close()

    def _start(self, offset: SourceOffset) -> None:
        self.close()
        self._readers = Readers(self._operator.parallelism, self._clock, self._splits, offset.get("readers", ()))
        if self._board is not None and self._strategy is not None and self._strategy.alignment is not None:
            max_desired = offset.get("max_desired")
            alignment = self._strategy.alignment
            self._aligner = Aligner(self._operator, alignment, self._board, self._clock, max_desired)
        restored = None if offset == BEFORE_START else self._states.from_json(offset["enumerator"])
        with self._calling("create_enumerator"):
            self._enumerator = self._source.create_enumerator(self._readers, restored)
        self._offset = offset
        self._readers.limit_per_batch = self._adaptive_limit()
        with self._calling("start"):
            self._enumerator.start()
        for subtask, held in enumerate(self._readers.reported):
            self._register(subtask, held)

    def _register(self, subtask: int, held: list[HeldSplit]) -> None:
        """Register a reader with the splits that it held in the previous run."""
        if isinstance(self._source, SupportsSplitReassignmentOnRecovery):
            info = ReaderInfo(subtask, tuple(split.at for split in held))
        else:
            info = ReaderInfo[Any](subtask)
            self._readers.states[subtask].splits = {split.at.split_id: split for split in held}
        self._readers.registered_readers[subtask] = info
        with self._calling("add_reader"):
            self._enumerator.add_reader(info)

    def _adaptive_limit(self) -> int | None:
        return None if self._adaptive is None else self._adaptive.of(self._enumerator.least_per_batch)

    def _least_limit(self, *limits: int | None) -> int | None:
        own = self._enumerator.limit_per_batch if self._limited else None
        return min((one for one in (*limits, own) if one is not None), default=None)

    def _plan(self, limit: int | None, batch: int) -> int:
        """Advance the splits within ``limit`` and return the total size.

        Each round gives an equal share to every split with more data.
        """
        size = 0
        left = [held for held in self._readers.all_held() if not held.paused]
        first = batch % len(left) if left else 0
        left = left[first:] + left[:first]  # rotate, so that a small limit reaches every split eventually
        while left and (limit is None or limit > 0):
            share = None if limit is None else max(1, limit // len(left))
            eager = []
            for held in left:
                if limit is not None and limit <= 0:
                    break
                portion = self._advance(held, share)
                if portion is None:
                    continue
                held.advance(portion)
                size += portion.size
                if limit is not None:
                    limit -= portion.size
                    if not portion.last:
                        eager.append(held)
            left = eager
        return size

    def _advance(self, held: HeldSplit, limit: int | None) -> Portion[Any] | None:
        with self._calling("advance"):
            portion = self._enumerator.advance(held.at, limit)
            if portion is not None and portion.stop.split_id != held.at.split_id:
                raise ContractError(
                    f"advance must return a position of the same split, but for {held.at} it returned {portion.stop}."
                )
        if portion is not None and not portion.size and not portion.last and portion.stop == held.at:
            return None  # otherwise the split would never be idle
        return portion

    def _snapshot(self, batch: int, now_ms: int, failures: int) -> SourceOffset:
        with self._calling("snapshot_state"):
            state = self._states.to_json(self._enumerator.snapshot_state())
        readers = [reader.to_json(self._splits) for reader in self._readers.states]
        there = {"batch": batch, "now_ms": now_ms, "enumerator": state, "readers": readers}
        if failures:
            there["failures"] = failures
        if self._aligner is not None:
            there["max_desired"] = self._aligner.max_desired
        if self._adaptive is not None:
            there["limit"] = self._adaptive.multiple
        written: SourceOffset = json.loads(json.dumps(there))  # as it is read from Spark's log, tuples as lists
        return written

    @contextmanager
    def _calling(self, callback: str) -> Iterator[None]:
        try:
            yield
        except NOT_OF_THE_USER:
            raise
        except BaseException as error:
            ours = isinstance(error, Dsv2Error)
            trace = "" if ours else "".join(traceback.format_exception(error))
            cause = str(error) if ours else f"{type(error).__qualname__}: {error}\n{trace}"
            raise JobError(
                f"The source {self._operator}, defined at {self._operator.location}, failed on the driver, in "
                f"{callback}: {cause}"
            ) from error
