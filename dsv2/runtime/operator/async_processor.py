"""The record path of async functions: which records are in flight, and when their results are emitted."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from dsv2.base.event_loop import EventLoop
from dsv2.graph import KeySelector
from dsv2.model.async_settings import AsyncBatchSettings, AsyncSettings
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.emitter import Emit, EmitStamped
from dsv2.runtime.exchange.position_tracing import CurrentPosition, suspended
from dsv2.runtime.operator.call_runner import CallRunner
from dsv2.runtime.operator.callback_limit import CallbackTimeout
from dsv2.runtime.operator.emission_queue import EmissionQueue, Emissions, Segment
from dsv2.runtime.operator.processors import Processor
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.report.metrics import DefaultCounter

_MOST_HELD = 10_000
"""Records that wait for earlier ones, of their key or in the order of emission, before reading pauses."""

_SECONDS_BETWEEN_STEPS = 0.001
"""The interval at which coroutines run while records arrive, so that calls begin below the capacity."""

_SECONDS_TO_CANCEL = 5.0

_Queued: TypeAlias = tuple[Any, int | None, Segment]
"""A record, its timestamp, and where its result is emitted."""


class AsyncProcessor(Processor):
    """Processes up to ``capacity`` records at the same time, those of a key one after the other.

    The event loop runs in ``process`` while the capacity is reached, and in ``complete``. Results are emitted outside
    of it, so that the operators downstream may use the loop themselves.
    """

    def __init__(
        self,
        runner: CallRunner,
        select: KeySelector | None,
        settings: AsyncSettings,
        loop: EventLoop,
        origin: CurrentPosition | None,
    ) -> None:
        self._runner = runner
        self._select = select
        self._capacity = settings.capacity
        self._loop = loop
        self._origin = origin
        self._queue = EmissionQueue(ordered=settings.ordered)
        self._tasks: dict[asyncio.Task[None], tuple[Any, Any]] = {}  # and the record of each, with its key
        self._waiting: dict[Any, deque[_Queued]] = {}  # for an earlier record of their key, which is in flight
        self._timestamp: int | None = None
        self._stepped = loop.loop.time()
        self._is_cancelled = False

    def process(self, batch: RecordBatch[Any]) -> None:
        add = self._add
        try:
            for record, self._timestamp in batch.pairs():
                add(record)
        finally:
            self._timestamp = None
        self._release()

    def new_emit(self, tally: DefaultCounter) -> Emit:
        add = self._add

        def emit(record: Any) -> None:
            tally.count += 1
            add(record)

        return emit

    def new_emit_stamped(self, emit: Emit) -> EmitStamped:
        def emit_stamped(record: Any, timestamp: int | None) -> None:
            self._timestamp = timestamp
            try:
                emit(record)
            finally:
                self._timestamp = None

        return emit_stamped

    def defer(self, action: Callable[[], object]) -> None:
        """Call ``action`` when the results of the records before it were emitted."""
        self._queue.then(action)
        self._release()

    def complete(self) -> None:
        """Complete the records in flight and emit their results."""
        while self._tasks:
            self._wait()
        self._release()
        self._runner.settle()

    def cancel(self) -> None:
        """Cancel the records in flight, because the job fails or the function is closed."""
        self._is_cancelled = True
        self._queue.clear()
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            ending = self._loop.loop.create_task(_ended(list(self._tasks), self._loop.wake))
            with contextlib.suppress(Exception, CallbackTimeout):
                while not ending.done():
                    self._loop.wait()
            self._tasks.clear()

    def _add(self, record: Any) -> None:
        timestamp, select = self._timestamp, self._select
        key = NO_KEY
        self._make_room()
        if select is not None:
            try:
                key = select(record)
                waiting = self._waiting.get(key)
            except BaseException as error:
                failure = self._runner.failure_of(error, record, NO_KEY)
                emissions = self._runner.give_up(failure, record, timestamp)
                self._queue.complete(self._queue.add(), emissions)
                return
            if waiting is not None:
                waiting.append((record, timestamp, self._queue.add()))
                return
        queued = record, timestamp, self._queue.add()
        if select is None:
            self._start(record, key, self._process(queued))
        else:
            self._waiting[key] = deque()
            self._start(record, key, self._process_key(key, queued))

    def _start(self, record: Any, key: Any, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks[self._loop.loop.create_task(coroutine)] = record, key

    async def _process(self, queued: _Queued) -> None:
        record, timestamp, segment = queued
        await self._settle(self._runner.run(record, NO_KEY, timestamp), segment, record, NO_KEY)
        self._end()

    async def _process_key(self, key: Any, queued: _Queued) -> None:
        """Process records of one key until none waits."""
        task, waiting = asyncio.current_task(), self._waiting[key]
        assert task is not None
        while True:
            record, timestamp, segment = queued
            self._tasks[task] = record, key
            await self._settle(self._runner.run(record, key, timestamp), segment, record, key)
            if not waiting or self._runner.failure is not None:
                break
            self._loop.wake()
            queued = waiting.popleft()
        del self._waiting[key]
        self._end()

    async def _settle(
        self, processing: Coroutine[Any, Any, Emissions], segment: Segment, record: Any, key: Any
    ) -> None:
        try:
            self._queue.complete(segment, await processing)
        except asyncio.CancelledError as error:
            if self._is_cancelled:
                raise
            # The function has cancelled its own task.
            self._runner.failure = self._runner.failure_of(error, record, key)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            self._runner.failure = self._runner.failure or error

    def _end(self) -> None:
        """End the current task."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.pop(task, None)
        self._loop.wake()

    def _make_room(self) -> None:
        while len(self._tasks) >= self._capacity or len(self._queue) >= _MOST_HELD:
            self._wait()
        now = self._loop.loop.time()
        if self._tasks and now - self._stepped > _SECONDS_BETWEEN_STEPS:
            self._run(self._loop.step)

    def _wait(self) -> None:
        """Run the event loop until a record is completed, and emit what can be emitted."""
        self._run(self._loop.wait)

    def _run(self, run: Callable[[], None]) -> None:
        if self._runner.failure is None:
            try:
                run()
            except CallbackTimeout as error:
                raise self._runner.failure_of(error, *next(iter(self._tasks.values()))) from error
            self._stepped = self._loop.loop.time()
        self._release()

    def _release(self) -> None:
        if self._runner.failure is not None:
            raise self._runner.failure
        with suspended(self._origin):  # the results are those of earlier records
            self._queue.release(self._runner.emit)


class AsyncBatchProcessor(AsyncProcessor):
    """Processes up to ``capacity`` batches of records at the same time."""

    def __init__(
        self, runner: CallRunner, settings: AsyncBatchSettings, loop: EventLoop, origin: CurrentPosition | None
    ) -> None:
        super().__init__(runner, None, settings, loop, origin)
        self._size = settings.batch_size
        self._max_delay = None if settings.max_delay is None else settings.max_delay.total_seconds()
        self._records: list[Any] = []
        self._timestamps: list[int | None] = []
        self._begun = 0.0

    def defer(self, action: Callable[[], object]) -> None:
        self._start_batch()
        super().defer(action)

    def complete(self) -> None:
        self._start_batch()
        super().complete()

    def _add(self, record: Any) -> None:
        if self._max_delay is not None:
            now = self._loop.loop.time()
            if not self._records:
                self._begun = now
            elif now - self._begun >= self._max_delay:
                self._start_batch()
                self._begun = now
        self._records.append(record)
        self._timestamps.append(self._timestamp)
        if len(self._records) >= self._size:
            self._start_batch()

    def _start_batch(self) -> None:
        if self._records:
            records, self._records = self._records, []
            timestamps, self._timestamps = self._timestamps, []
            self._make_room()
            self._start(records, NO_KEY, self._process_batch(records, timestamps, self._queue.add()))

    async def _process_batch(self, records: list[Any], timestamps: list[int | None], segment: Segment) -> None:
        await self._settle(self._runner.run_batch(records, timestamps), segment, records, NO_KEY)
        self._end()


async def _ended(tasks: Iterable[asyncio.Task[None]], wake: Callable[[], None]) -> None:
    await asyncio.wait(tasks, timeout=_SECONDS_TO_CANCEL)
    wake()
