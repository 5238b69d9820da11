"""Functions that wait for services without blocking (Flink ``AsyncFunction``, with keys, state and timers)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic

from dsv2.base.type_variables import IN_contra, OUT_co
from dsv2.errors import ConfigurationError, PlanError
from dsv2.model.async_settings import AsyncBatchSettings, AsyncSettings
from dsv2.model.context import BatchContext, Collector, NonPartitionedContext, PartitionedContext
from dsv2.spi import AsyncFunction, Position
from dsv2.watermark import Watermark, WatermarkHandlingResult


class AsyncOneInputStreamProcessFunction(AsyncFunction[IN_contra, OUT_co], ABC, Generic[IN_contra, OUT_co]):
    """A function that reads one stream and emits one stream, and processes several records at the same time.

    While ``process_record`` waits for one record, it is called for others: on a keyed stream for one record of each key
    at a time. ``output``, ``ctx``, states and timers belong to the record for which the coroutine was called, also in
    tasks that it starts and awaits. Set ``async_settings`` for capacity, order and timeout.

    The other callbacks are not coroutines. They run while no record is in flight. At the end of a micro-batch all
    records are completed.

    Source: Flink ``AsyncFunction`` and ``AsyncDataStream``.
    """

    def open(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once per subtask before the first record. May emit watermarks. Clients are an ``AsyncResource``."""

    @abstractmethod
    async def process_record(
        self, record: IN_contra, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Called for every record. It runs in the thread of the task: call code that blocks by ``asyncio.to_thread``.

        What it emits is sent when it has returned. If it raises, its emissions and its changes of state and timers are
        undone. It is cancelled at the timeout and when the job fails.
        """

    def on_timeout(self, record: IN_contra, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called when a record has exceeded the timeout, after ``process_record`` was cancelled and undone.

        Emit a result for the record, or raise the error that it fails with. Without this method it fails with a
        ``TimeoutError``. (Flink ``AsyncFunction.timeout``.)
        """

    def dsv2_check_position(self, position: Position) -> None:
        super().dsv2_check_position(position)
        _check_settings(self, AsyncSettings)

    def end_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once when every channel of the input has ended and all records are completed. May emit."""

    def on_processing_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called when a processing-time timer fires (``timestamp`` in ms), for the key of the timer. Keyed only."""

    def on_watermark(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark, when the records before it are completed.

        A function that overrides it, or has event time, waits for these records before it begins later ones. Other
        functions begin later records at once, and forward the watermark in its place.
        """
        return WatermarkHandlingResult.PEEK


class AsyncBatchProcessFunction(AsyncFunction[IN_contra, OUT_co], ABC, Generic[IN_contra, OUT_co]):
    """A function that processes batches of records, several at the same time, such as for a model server.

    A batch has the records of several channels, in the order of their arrival, between two watermarks. Set
    ``async_settings`` to an ``AsyncBatchSettings`` for its size. The stream must not be keyed, because a batch has
    records of several keys.
    """

    async_settings: AsyncSettings = AsyncBatchSettings()

    def open(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once per subtask before the first record. May emit watermarks. Clients are an ``AsyncResource``."""

    @abstractmethod
    async def process_records(
        self, records: Sequence[IN_contra], output: Collector[OUT_co], ctx: BatchContext[OUT_co]
    ) -> None:
        """Called for every batch, which is not empty.

        Emitted records have no timestamps, unless they are emitted with one of ``ctx.timestamps``. If a batch raises an
        error that an error policy skips, each record is processed as a batch of its own.
        """

    def on_timeout(self, records: Sequence[IN_contra], output: Collector[OUT_co], ctx: BatchContext[OUT_co]) -> None:
        """Called when a batch has exceeded the timeout, as in ``AsyncOneInputStreamProcessFunction``."""

    def end_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once when every channel of the input has ended and all records are completed. May emit."""

    def on_watermark(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark, as in ``AsyncOneInputStreamProcessFunction``."""
        return WatermarkHandlingResult.PEEK

    def dsv2_check_position(self, position: Position) -> None:
        super().dsv2_check_position(position)
        name = type(self).__qualname__
        if position.keyed:
            raise PlanError(
                f"{name} processes records of several keys at once, so its input must not be keyed. Call key_by after "
                f"it, or use an AsyncOneInputStreamProcessFunction."
            )
        _check_settings(self, AsyncBatchSettings)


def _check_settings(function: AsyncFunction[Any, Any], kind: type[AsyncSettings]) -> None:
    settings: object = function.async_settings
    if not isinstance(settings, kind):
        raise ConfigurationError(
            f"{type(function).__qualname__}.async_settings must be {kind.__name__}(...), not {settings!r}."
        )
