"""Turns what a source reads into records: without those to skip, and decoded under the error policy of the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from dsv2.base.clock import Clock, SystemClock
from dsv2.base.record_position import Offset, RecordPosition, SplitName
from dsv2.errors import JobError, UserFunctionError
from dsv2.graph import Operator
from dsv2.model.error_policy import ErrorPolicy
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.report.failure import NOT_OF_THE_USER, raise_user_failure
from dsv2.runtime.report.policy_rules import PolicyRules
from dsv2.runtime.sources.offsets import Positions
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.sources import SplitBatch

_RECORDS_SKIPPED = "records_skipped"

_NOT_OF_THE_VALUE = (*NOT_OF_THE_USER, JobError)
"""Exceptions that do not concern the value, such as that of a service that cannot be reached."""


class Decoding:
    """Decodes what one subtask of a source reads in one micro-batch, and sends it.

    Args:
        operator: The source.
        subtask: The index of the subtask.
        task: Receives the records and the dead letters.
        now_ms: The processing time of the micro-batch in ms.
        callback: What decodes, in errors.
        clock: Waits before a value is decoded again. None: the system clock.
        failures_before: The failures of the source before this micro-batch.
        to_columns: Whether a function or sink on tables receives the records.
    """

    def __init__(
        self,
        operator: Operator,
        subtask: int,
        task: SourceTask,
        now_ms: int,
        callback: str = "decode",
        clock: Clock | None = None,
        failures_before: int = 0,
        to_columns: bool = False,
    ) -> None:
        self._operator = operator
        self._subtask = subtask
        self._task = task
        self._callback = callback
        policy = ErrorPolicy() if operator.error_policy is None else operator.error_policy
        self._clock = clock or SystemClock()
        random = Random(f"{operator.uid}/{subtask}")  # a repeated task waits as long
        self._to_columns = to_columns
        total = failures_before.__add__
        self._rules = PolicyRules(policy, operator, subtask, lambda: now_ms, task.count, total, random)
        self._split: SplitName = 0
        self._skips: frozenset[Offset] = frozenset()
        self._name_start: Callable[[], str] = str
        self._count = 0  # values of the portion so far

    @property
    def failures(self) -> int:
        """The number of values that were skipped or became dead letters."""
        return self._rules.failures

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
        return self._decoded(batch, positions) if isinstance(batch, SplitBatch) else (batch, positions)

    def decode_again(
        self, batch: SplitBatch[Any], split: SplitName, offset: Offset
    ) -> tuple[RecordBatch[Any], Positions]:
        """Return the record of a dead letter, which was at ``offset`` of ``split``, like ``decode``.

        ``batch``: The value. Its record is not skipped.
        """
        return self._decoded(batch, Positions(self._operator.uid, split, lambda: [offset]))

    def _decoded(self, batch: SplitBatch[Any], positions: Positions) -> tuple[RecordBatch[Any], Positions]:
        if self._to_columns and batch.decode_columns is not None:
            with suppress(Exception):  # decode to rows, to find the values that fail
                return batch.decode_columns(), positions
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
        self._task.count(_RECORDS_SKIPPED, len(skipped))
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
                failure = self._failure(error, value if batch.raw is None else batch.raw(value), positions.at(index))
                if (pause := self._rules.pause_before_retry(failure, attempt)) is None:
                    if (letter := self._rules.give_up(failure)) is not None:
                        timestamps = batch.own_timestamps
                        self._task.send_letter(letter, None if timestamps is None else timestamps[index])
                    return False, None
                self._clock.wait(pause)
            attempt += 1

    def _failure(self, error: BaseException, raw: Any, position: RecordPosition) -> UserFunctionError:
        try:
            raise_user_failure(self._operator, self._subtask, self._callback, error, record=raw, position=position)
        except UserFunctionError as failure:
            return failure


def _taken(batch: RecordBatch[Any], indices: Sequence[int]) -> RecordBatch[Any]:
    if isinstance(batch, SplitBatch):
        return batch.taken(indices)
    timestamps = batch.timestamps
    taken = None if timestamps is None else [timestamps[index] for index in indices]
    return RecordBatch([batch.records[index] for index in indices], taken)
