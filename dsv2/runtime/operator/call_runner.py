"""Runs the calls of an async function: attempts, timeouts, the rate of calls, and what is undone after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from dsv2.async_settings import AsyncSettings
from dsv2.errors import UserFunctionError
from dsv2.runtime.operator.attempts import Attempts
from dsv2.runtime.operator.emission_queue import Emissions
from dsv2.runtime.operator.in_flight import Call, begin_call
from dsv2.runtime.operator.processors import RecordCallback
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.undo import UndoLog
from dsv2.spi import refuse_returned

__all__ = ("CallRunner",)


class CallRunner:
    """Runs ``callback``, whose ``process`` is a coroutine function, under the error policy of ``attempts``."""

    def __init__(
        self,
        callback: RecordCallback,
        attempts: Attempts,
        settings: AsyncSettings,
        store: PagedKeyedStore,
        undo: UndoLog,
        time: Callable[[], float],
    ) -> None:
        """``store``: The state of the keys. ``undo``: Its log. ``time``: The time of the event loop, in seconds."""
        self._callback = callback
        self._attempts = attempts
        self._timeout = None if settings.timeout is None else settings.timeout.total_seconds()
        self._store = store
        self._undo = undo
        self._time = time
        self._seconds_between_calls = 0 if settings.calls_per_second is None else 1 / settings.calls_per_second
        self._next_call = 0.0

    async def run(self, record: Any, key: Any, timestamp: int | None) -> Emissions:
        """Process a record. Returns what is emitted for it: dead letters if the policy sets it aside.

        Raises:
            UserFunctionError: The policy does not cover the error of the function.
        """
        return await self._run(record, key, timestamp, ())

    async def run_batch(self, records: list[Any], timestamps: Sequence[int | None]) -> Emissions:
        """Process a batch. If it fails and the policy does not fail the job, process each of its records alone."""
        try:
            return await self._run(records, NO_KEY, None, timestamps, gives_up=len(records) == 1)
        except UserFunctionError as failure:
            if len(records) == 1 or not self._attempts.covers(failure):
                raise
        emissions: Emissions = []
        for record, timestamp in zip(records, timestamps, strict=True):
            emissions += await self.run_batch([record], [timestamp])
        return emissions

    async def _run(
        self, record: Any, key: Any, timestamp: int | None, timestamps: Sequence[int | None], *, gives_up: bool = True
    ) -> Emissions:
        if self._seconds_between_calls:
            await self._turn()
        try:
            async with asyncio.timeout(self._timeout):
                return await self._repeat(record, key, timestamp, timestamps)
        except TimeoutError as error:
            failure = self.failure_of(self._late(error), record, key)
        except UserFunctionError as error:
            failure = error
        if not gives_up:
            raise failure
        return self.give_up(failure)

    async def _repeat(
        self, record: Any, key: Any, timestamp: int | None, timestamps: Sequence[int | None]
    ) -> Emissions:
        process: Callable[[Any, Any, Any], Coroutine[Any, Any, object]]
        process, output, ctx = self._callback.process, self._callback.output, self._callback.ctx  # type: ignore[assignment]
        touched = self._store.touched
        attempt = 0
        while True:
            call = Call(key, timestamp, timestamps)
            begin_call(call)
            self._undo.begin()
            known = NO_KEY
            try:
                if key is not NO_KEY and key not in touched:
                    self._store.touch(key)
                known = key
                returned = await process(record, output, ctx)
                if returned is not None:
                    refuse_returned(returned)
            except BaseException as error:
                self._end(call, self._undo.undo_key)
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                failure = self.failure_of(error, record, known)
            else:
                self._end(call, self._undo.commit_key)
                return call.held
            pause = self._attempts.pause_before_retry(failure, attempt)
            if pause is None:
                raise failure
            attempt += 1
            await asyncio.sleep(pause.total_seconds())
            if self._seconds_between_calls:
                await self._turn()

    def failure_of(self, error: BaseException, record: Any, key: Any) -> UserFunctionError:
        """The error that the user sees for ``error``. Raises errors that are not failures of user code."""
        try:
            self._callback.fail(error, record, key)
        except UserFunctionError as failure:
            return failure

    def give_up(self, failure: UserFunctionError) -> Emissions:
        """What is emitted for a record that failed. Raises ``UserFunctionError`` if the policy does not cover it."""
        letter = self._attempts.give_up(failure)
        return [] if letter is None else [(self._attempts.emit_letter, letter, None)]

    def emit(self, emissions: Emissions) -> None:
        """Emit what a call has emitted."""
        try:
            for emit, *arguments in emissions:
                emit(*arguments)
        except BaseException as error:
            self._attempts.fail_emission(error)

    def settle(self) -> None:
        """Called when no record is in flight."""
        self._undo.commit()

    def _end(self, call: Call, settle: Callable[[Any], None]) -> None:
        call.is_open = False
        if call.key is not NO_KEY:
            settle(call.key)

    async def _turn(self) -> None:
        """Wait until the next call may begin."""
        now = self._time()
        begin = max(now, self._next_call)
        self._next_call = begin + self._seconds_between_calls
        if begin > now:
            await asyncio.sleep(begin - now)

    def _late(self, error: TimeoutError) -> TimeoutError:
        assert self._timeout is not None
        late = TimeoutError(f"not completed within {self._timeout * 1000:,.0f} ms, the timeout of async_settings")
        cancelled = error.__cause__
        return late if cancelled is None else late.with_traceback(cancelled.__traceback__)  # shows what it waited for


def _is_cancelled() -> bool:
    """Whether the current task was cancelled, rather than something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
