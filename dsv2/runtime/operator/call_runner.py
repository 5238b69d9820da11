"""Runs the calls of an async function: attempts, timeouts, the rate of calls, and what is undone after a failure."""

from __future__ import annotations

import asyncio
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dsv2.errors import ContractError, UserFunctionError
from dsv2.model.async_settings import AsyncSettings
from dsv2.runtime.operator.attempts import Attempts
from dsv2.runtime.operator.current_call import Call, begin_call
from dsv2.runtime.operator.emission_queue import Emissions
from dsv2.runtime.operator.processors import Process, RecordCallback
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.report.letter_buffer import Received
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.undo import UndoLog
from dsv2.spi import refuse_returned

_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class CallRunner:
    """Runs ``callback``, whose ``process`` is a coroutine function, under the error policy of ``attempts``."""

    def __init__(
        self,
        callback: RecordCallback,
        on_timeout: RecordCallback | None,
        attempts: Attempts,
        settings: AsyncSettings,
        store: PagedKeyedStore,
        undo: UndoLog,
        time: Callable[[], float],
    ) -> None:
        """Create the runner.

        Args:
            callback: The coroutine function.
            on_timeout: Called instead of a failure at the timeout. None: the record fails.
            attempts: The error policy.
            settings: The settings of the function.
            store: The state of the keys.
            undo: Its log.
            time: The time of the event loop, in seconds.
        """
        self._callback = callback
        self._on_timeout = None if on_timeout is None else replace(on_timeout, process=_awaitable(on_timeout.process))
        self._attempts = attempts
        self._timeout = None if settings.timeout is None else settings.timeout.total_seconds()
        self._store = store
        self._undo = undo
        self._time = time
        self._seconds_between_calls = 0 if settings.calls_per_second is None else 1 / settings.calls_per_second
        self._next_call = 0.0
        self._package = callback.process.__module__.partition(".")[0]
        self.failure: BaseException | None = None
        """The error that the job fails with."""

    async def run(self, record: Any, key: Any, timestamp: int | None) -> Emissions:
        """Process a record. Returns what is emitted for it: dead letters if the policy sets it aside.

        Raises:
            UserFunctionError: The policy does not cover the error of the function.
        """
        result, _ = await self._run(record, record, partial(Call, key, timestamp, ()))
        return self._or_letter(result, record, timestamp)

    async def run_batch(self, records: list[Any], timestamps: Sequence[int | None]) -> Emissions:
        """Process a batch. If it fails and the policy does not fail the job, process each of its records alone."""
        shown = records[0] if len(records) == 1 else records
        result, is_late = await self._run(records, shown, partial(Call, NO_KEY, None, timestamps))
        if isinstance(result, list) or len(records) == 1 or not self._attempts.rules.covers(result):
            return self._or_letter(result, records[0], timestamps[0])
        emissions: Emissions = []
        for record, timestamp in zip(records, timestamps, strict=True):
            if is_late:  # no time is left
                assert result.cause is not None
                emissions += self.give_up(self.failure_of(result.cause, record, NO_KEY), record, timestamp)
            else:
                emissions += await self.run_batch([record], [timestamp])
        return emissions

    async def _run(
        self, argument: Any, shown: Any, new_call: Callable[[], Call]
    ) -> tuple[Emissions | UserFunctionError, bool]:
        """Return what the call emits or its failure, and whether it was cancelled at the timeout.

        ``shown``: The record in the error.
        """
        await self._turn()
        try:
            async with asyncio.timeout(self._timeout):
                return await self._repeat(argument, shown, new_call), False
        except TimeoutError as error:
            if self._on_timeout is None:
                return self.failure_of(self._late(error), shown, new_call().key), True
        return await self._attempt(self._on_timeout, argument, shown, new_call()), True

    async def _repeat(self, argument: Any, shown: Any, new_call: Callable[[], Call]) -> Emissions | UserFunctionError:
        attempt = 0
        while True:
            result = await self._attempt(self._callback, argument, shown, new_call())
            if isinstance(result, list):
                return result
            pause = self._attempts.rules.pause_before_retry(result, attempt)
            if pause is None:
                return result
            attempt += 1
            await asyncio.sleep(pause.total_seconds())
            await self._turn()

    async def _attempt(
        self, callback: RecordCallback, argument: Any, shown: Any, call: Call
    ) -> Emissions | UserFunctionError:
        key, known, touched = call.key, NO_KEY, self._store.touched
        begin_call(call)
        self._undo.begin()
        try:
            if key is not NO_KEY and key not in touched:
                self._store.touch(key)
            known = key
            process: Any = callback.process
            returned = await process(argument, callback.output, callback.ctx)
            if returned is not None:
                refuse_returned(returned)
            if call.tasks:
                self._refuse_left_tasks(call)
        except BaseException as error:
            self._end(call, self._undo.undo_key)
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            return _failure_of(callback, error, shown, known)
        call.late_use = partial(self._fail_late, shown, known)
        self._end(call, self._undo.commit_key)
        return call.held

    def _refuse_left_tasks(self, call: Call) -> None:
        """Raise ``ContractError`` if the function has left a task behind. Libraries may start tasks of their own."""
        for started in call.tasks:
            is_own = started.module.partition(".")[0] == self._package or not started.file.startswith(_LIBRARIES)
            if is_own and started.is_left:
                task = started.task
                error = task.exception() if task.done() else None
                outcome = "still runs" if error is None else f"failed with {type(error).__name__}: {error}"
                raise ContractError(
                    f"The function has returned without awaiting the task {started}, which {outcome}. Await every "
                    f"task before the function returns, or its output is lost. Start a task that is not about the "
                    f"record with create_task(..., context=contextvars.Context())."
                ) from error

    def _fail_late(self, record: Any, key: Any, error: ContractError) -> None:
        self.failure = self.failure or self.failure_of(error, record, key)

    def failure_of(self, error: BaseException, record: Any, key: Any) -> UserFunctionError:
        """The error that the user sees for ``error``. Raises errors that are not failures of user code."""
        return _failure_of(self._callback, error, record, key)

    def give_up(self, failure: UserFunctionError, record: Any, timestamp: int | None) -> Emissions:
        """Return the emissions for a failed record. Raises ``UserFunctionError`` if the policy does not cover it."""
        letter = self._attempts.rules.give_up(failure)
        return [] if letter is None else [(self._attempts.emit_letter, letter, Received(0, record, timestamp))]

    def _or_letter(self, result: Emissions | UserFunctionError, record: Any, timestamp: int | None) -> Emissions:
        return result if isinstance(result, list) else self.give_up(result, record, timestamp)

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
        call.tasks.clear()  # they refer to the call, so nothing would be freed without garbage collection
        if call.key is not NO_KEY:
            settle(call.key)

    async def _turn(self) -> None:
        """Wait until the next call may begin."""
        if not self._seconds_between_calls:
            return
        now = self._time()
        begin = max(now, self._next_call)
        self._next_call = begin + self._seconds_between_calls
        if begin > now:
            await asyncio.sleep(begin - now)

    def _late(self, error: TimeoutError) -> TimeoutError:
        assert self._timeout is not None
        late = TimeoutError(f"not completed within {self._timeout * 1000:,.0f} ms, the timeout of async_settings")
        cancelled = error.__cause__ or error.__context__  # Python 3.11.2 sets only the latter
        return late if cancelled is None else late.with_traceback(cancelled.__traceback__)  # shows what it waited for


def _failure_of(callback: RecordCallback, error: BaseException, record: Any, key: Any) -> UserFunctionError:
    try:
        callback.fail(error, record, key)
    except UserFunctionError as failure:
        return failure


def _awaitable(process: Process) -> Process:
    """Return a coroutine function that calls ``process``."""

    async def call(*arguments: Any) -> object:
        return process(*arguments)

    return call


def _is_cancelled() -> bool:
    """Return whether the current task was cancelled, rather than something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
