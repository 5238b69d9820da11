"""Turns what a source reads into records: without those to skip, and decoded under the error policy of the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from dsv2.clock import Clock, SystemClock
from dsv2.error_policy import DeadLetter, ErrorAction, ErrorPolicy
from dsv2.errors import JobError, UserFunctionError
from dsv2.graph import Operator
from dsv2.record_batch import RecordBatch
from dsv2.record_position import Offset, RecordPosition, SplitName
from dsv2.runtime.report.failure import NOT_OF_THE_USER, raise_user_failure
from dsv2.runtime.sources.positions import Positions
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.sources import SplitBatch

__all__ = ("RECORDS_SKIPPED", "Decoding")

RECORDS_SKIPPED = "records_skipped"
"""The counter of the records that ``skip_records`` has skipped."""

_NOT_OF_THE_VALUE = (*NOT_OF_THE_USER, JobError)
"""Exceptions that do not concern the value, such as that of a service that cannot be reached."""

_COUNTERS = {ErrorAction.SKIP: "errors_skipped", ErrorAction.DEAD_LETTER: "errors_dead_lettered"}


class Decoding:
    """Decodes what one subtask of a source reads in one micro-batch, and sends it.

    Args:
        operator: The source.
        subtask: The index of the subtask.
        task: Receives the records and the dead letters.
        now_ms: The processing time of the micro-batch in ms.
        callback: What decodes, in errors.
        clock: Waits before a value is decoded again. None: the system clock.
    """

    def __init__(
        self,
        operator: Operator,
        subtask: int,
        task: SourceTask,
        now_ms: int,
        callback: str = "decode",
        clock: Clock | None = None,
    ) -> None:
        self._operator = operator
        self._subtask = subtask
        self._task = task
        self._now_ms = now_ms
        self._callback = callback
        self._clock = clock or SystemClock()
        self._policy = ErrorPolicy() if operator.error_policy is None else operator.error_policy
        self._failures = 0
        self._split: SplitName = 0
        self._skips: frozenset[Offset] = frozenset()
        self._name_start: Callable[[], str] = str
        self._count = 0  # values of the portion so far

    def begin(self, split: SplitName, name_start: Callable[[], str]) -> None:
        """Begin a portion of ``split``. ``name_start``: Names its start, for offsets that are counted from there."""
        self._split = split
        self._skips = frozenset(offset for name, offset in self._operator.skips if name == split)
        self._name_start = name_start
        self._count = 0

    def decode(self, batch: RecordBatch[Any]) -> tuple[RecordBatch[Any], Positions]:
        """Return the records of a batch of the portion, and their positions.

        Raises:
            UserFunctionError: A value cannot be decoded, and the error policy does not cover the error.
        """
        if isinstance(batch, SplitBatch):
            positions = self._positions(len(batch.values), batch.offsets)
        else:
            positions = self._positions(len(batch), None)
        if self._skips:
            batch, positions = self._without_skipped(batch, positions)
        if not isinstance(batch, SplitBatch):
            return batch, positions
        try:
            records, kept = RecordBatch(batch.records, batch.timestamps), batch.kept
        except _NOT_OF_THE_VALUE:
            raise
        except BaseException:  # decode one by one to find the values that fail
            return self._one_by_one(batch, positions)
        return records, positions if kept is None else positions.taken(kept)

    def _positions(self, count: int, offsets: Callable[[], Sequence[Offset]] | None) -> Positions:
        first, name_start = self._count + 1, self._name_start
        self._count += count
        if offsets is None:
            offsets = lambda: [f"{name_start()}#{number}" for number in range(first, first + count)]  # noqa: E731
        return Positions(self._operator.uid, self._split, offsets)

    def _without_skipped(self, batch: RecordBatch[Any], positions: Positions) -> tuple[RecordBatch[Any], Positions]:
        kept = [index for index, offset in enumerate(positions.offsets) if offset not in self._skips]
        if len(kept) == len(positions.offsets):
            return batch, positions
        skipped = [offset for offset in positions.offsets if offset in self._skips]
        self._task.count(RECORDS_SKIPPED, len(skipped))
        self._task.skipped += [(self._split, offset) for offset in skipped]
        return _taken(batch, kept), positions.taken(kept)

    def _one_by_one(self, batch: SplitBatch[Any], positions: Positions) -> tuple[RecordBatch[Any], Positions]:
        records: list[Any] = []
        kept: list[int] = []
        for index, value in enumerate(batch.values):
            succeeded, record = self._attempt(batch, value, positions, index)
            if succeeded and not (record is None and batch.omits_none):
                records.append(record)
                kept.append(index)
        timestamps = batch.own_timestamps
        taken = None if timestamps is None else [timestamps[index] for index in kept]
        return RecordBatch(records, taken), positions.taken(kept)

    def _attempt(self, batch: SplitBatch[Any], value: Any, positions: Positions, index: int) -> tuple[bool, Any]:
        attempt = 0
        while True:
            try:
                return True, value if batch.decode is None else batch.decode(value)
            except _NOT_OF_THE_VALUE:
                raise
            except BaseException as error:
                if not self._repeats(error, attempt):
                    self._give_up(error, value if batch.raw is None else batch.raw(value), positions.at(index))
                    return False, None
            attempt += 1

    def _repeats(self, error: BaseException, attempt: int) -> bool:
        retry = self._policy.retry_for(error)
        if retry is None or attempt >= retry.times:
            return False
        self._task.count("errors_retried")
        self._clock.wait(timedelta(milliseconds=retry.pause_ms(attempt)))
        return True

    def _give_up(self, error: BaseException, raw: Any, position: RecordPosition) -> None:
        try:
            raise_user_failure(self._operator, self._subtask, self._callback, error, record=raw, position=position)
        except UserFunctionError as failure:
            action = self._policy.action_for(error)
            if action is ErrorAction.FAIL:
                raise
            self._task.count(_COUNTERS[action])
            self._failures += 1
            self._check_limit(failure)
            if action is ErrorAction.DEAD_LETTER:
                self._task.send_letter(self._letter(failure, raw))

    def _check_limit(self, failure: UserFunctionError) -> None:
        limit = self._policy.max_failures_per_micro_batch
        if limit is not None and self._failures > limit:
            raise failure.with_note(
                f"The error policy of the source allows {limit} failures per micro-batch in a subtask, and this is "
                f"number {self._failures}."
            ) from failure.cause

    def _letter(self, failure: UserFunctionError, raw: Any) -> DeadLetter[Any]:
        return DeadLetter(
            operator=self._operator.uid,
            subtask=self._subtask,
            callback=failure.callback,
            key=None,
            record=raw,
            error_type=failure.cause_type,
            error_message=failure.cause_message,
            traceback=failure.traceback_text,
            location=failure.location,
            time=self._now_ms,
            position=failure.position,
        )


def _taken(batch: RecordBatch[Any], indices: Sequence[int]) -> RecordBatch[Any]:
    if isinstance(batch, SplitBatch):
        return batch.taken(indices)
    timestamps = batch.timestamps
    taken = None if timestamps is None else [timestamps[index] for index in indices]
    return RecordBatch([batch.records[index] for index in indices], taken)
