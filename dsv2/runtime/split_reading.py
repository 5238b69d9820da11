"""What one reader does in one micro-batch: the portions of its splits, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsv2.graph import Operator
from dsv2.runtime.contexts import WatermarkEmitter
from dsv2.runtime.failure import raise_user_failure
from dsv2.runtime.frames import STATUS, WATERMARK
from dsv2.runtime.source_coordinator import ReaderOrder
from dsv2.runtime.source_task import SourceTask
from dsv2.sources import Records, Source, SourceReader
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.event_time import IDLE_STATUS

__all__ = ("read_portions",)


class _Context(WatermarkEmitter):
    """The reader's view (``SourceReaderContext``)."""

    def __init__(
        self, subtask: int, parallelism: int, task: SourceTask, declarations: Mapping[str, WatermarkDeclaration]
    ) -> None:
        super().__init__(declarations, self._send_watermark)
        self.subtask = subtask
        self.parallelism = parallelism
        self._task = task

    def mark_idle(self) -> None:
        """Nothing comes for now."""
        self._task.control(STATUS, "", True)

    def mark_active(self) -> None:
        """There are records again."""
        self._task.control(STATUS, "", False)

    def _send_watermark(self, identifier: str, value: int | bool) -> None:
        if identifier == IDLE_STATUS:
            self._task.control(STATUS, "", value)
        else:
            self._task.control(WATERMARK, identifier, value)


def read_portions(
    source: Source[Any, Any, Any],
    operator: Operator,
    order: ReaderOrder,
    task: SourceTask,
    declarations: Mapping[str, WatermarkDeclaration],
) -> Iterator[int]:
    """Hand what ``order`` says to ``task``; yields the number of records of each run when it has been handed on.

    Raises ``UserFunctionError`` for what the reader raises.
    """
    ctx = _Context(order.subtask, operator.parallelism, task, declarations)
    reader: SourceReader[Any, Any] | None = None
    callback = "create_reader"
    try:
        if order.portions:
            reader = source.create_reader(ctx)
        callback = "read"
        for portion in order.portions:
            assert reader is not None
            for run in reader.read(portion.start, portion.stop):
                yield _send(run, task)
    except Exception as error:
        raise_user_failure(operator, order.subtask, callback, error)
    finally:
        if reader is not None:
            reader.close()


def _send(run: Records[Any], task: SourceTask) -> int:
    if not isinstance(run, Records):
        raise TypeError(f"read yields Records, not {type(run).__name__}: yield Records(list_of_records).")
    records = list(run.records)
    if run.timestamps is not None and len(run.timestamps) != len(records):
        raise ValueError(f"There are {len(records)} records and {len(run.timestamps)} timestamps.")
    task.send(records, None if run.timestamps is None else list(run.timestamps))
    return len(records)
