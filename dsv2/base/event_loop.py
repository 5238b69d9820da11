"""An asyncio event loop that runs only while a task waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dsv2.base.type_variables import T

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop  # asyncio is imported when it is used, because that takes long


class EventLoop:
    """Runs coroutines in the thread of the caller, between ``wait`` and ``wake``.

    Args:
        new_loop: Creates the event loop. None: ``asyncio.new_event_loop``.
    """

    def __init__(self, new_loop: Callable[[], AbstractEventLoop] | None = None) -> None:
        import asyncio

        self._runner = asyncio.Runner(loop_factory=new_loop or asyncio.new_event_loop)
        self.loop = self._runner.get_loop()
        self.wake = self.loop.stop
        """Ends ``wait`` after what is ready now. Called by coroutines."""

    def wait(self) -> None:
        """Run coroutines until one of them calls ``wake``."""
        outside_of_loops(self.loop.run_forever, self.loop)

    def step(self) -> None:
        """Run what is ready, without waiting."""
        self.loop.stop()
        self.wait()

    def close(self) -> None:
        """Cancel all coroutines and close the loop."""
        outside_of_loops(self._runner.close, self.loop)


def outside_of_loops(run: Callable[[], T], loop: AbstractEventLoop) -> T:
    """Return ``run()``, which runs ``loop``.

    A thread runs one loop at a time. If one runs already, as in a notebook, call ``run`` in another thread.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    if asyncio._get_running_loop() is None:
        return run()
    with ThreadPoolExecutor(1, "dsv2-event-loop") as executor:
        running = executor.submit(run)
        try:
            return running.result()
        except BaseException:
            if not running.done():  # this thread was interrupted
                loop.call_soon_threadsafe(loop.stop)
            raise
