"""An event loop whose time is the job's clock, for tests."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from datetime import timedelta
from math import ceil
from typing import Any

from dsv2.base.clock import Clock
from dsv2.runtime.operator.callback_limit import CallbackTimeout


class ClockEventLoop(asyncio.SelectorEventLoop):
    """Advances ``clock`` instead of waiting, so that ``asyncio.sleep`` and timeouts take no time.

    While a thread of ``asyncio.to_thread`` runs, time stands still. Connections are not waited for: replace services by
    coroutines.

    Args:
        clock: The clock. The loop reads it, and calls ``wait`` to advance it by whole milliseconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin = clock.now_ms()  # so that times are small and floating-point numbers exact enough
        self._threads = 0
        super().__init__(_ClockSelector(clock, lambda: self._threads > 0))

    def time(self) -> float:
        """The seconds since the loop was created, by the clock."""
        return (self._clock.now_ms() - self._begin) / 1000

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """As in any loop. Time stands still until ``func`` returns."""
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        """As in any loop. Python 3.12 and later pass a timeout."""
        self._threads += 1  # it waits for a thread
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._threads -= 1

    def _thread_ended(self, future: asyncio.Future[Any]) -> None:
        self._threads -= 1


class _ClockSelector(selectors.DefaultSelector):
    def __init__(self, clock: Clock, waits_for_threads: Callable[[], bool]) -> None:
        super().__init__()
        self._clock = clock
        self._waits_for_threads = waits_for_threads

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, and advance the clock by ``timeout`` seconds if nothing is.

        Raises:
            CallbackTimeout: Nothing can become ready.
        """
        if self._waits_for_threads():
            return super().select(timeout if timeout == 0 else None)
        if timeout is None:
            if len(self.get_map()) == 1:  # the loop itself
                raise CallbackTimeout("no record can be completed: their coroutines wait for what does not happen")
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self._clock.wait(timedelta(milliseconds=ceil(timeout * 1000 - 1e-6)))
        return ready
