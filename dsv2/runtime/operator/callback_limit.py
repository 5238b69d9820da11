"""A timeout for callbacks that block, detected by sampling the stack of the task.

Sampling adds no cost per callback. A watcher thread samples the current call of user code. If it stays the same until
the timeout, a signal makes the main thread raise ``CallbackTimeout`` within the callback, which is reported like any
other failure: with operator, subtask, key and record.
"""

from __future__ import annotations

import inspect
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_LOG = logging.getLogger(__name__)
_SIGNAL = signal.SIGUSR2
_OUR_PACKAGES = ("dsv2", "runtime_spark")
_LONGEST_PAUSE_SECONDS = 1.0
_SHORTEST_GRACE_SECONDS = 5.0
_EXIT_CODE = 70


class CallbackTimeout(BaseException):
    """Raised within a callback that did not return in time."""


@contextmanager
def callback_limit(timeout_ms: int | None, *, may_exit: bool) -> Iterator[None]:
    """Interrupt callbacks within the block that take longer than a timeout.

    Python can interrupt its own code and most system calls in the main thread.

    Args:
        timeout_ms: The timeout in ms. None: there is no timeout.
        may_exit: If a callback cannot be interrupted, write the stack to standard error and end the process. If
            False, log the stack instead.
    """
    if timeout_ms is None:
        yield
        return
    watch = _Watch(timeout_ms, may_exit=may_exit)
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(_SIGNAL, watch.interrupt) if in_main_thread else None
    watch.begin(in_main_thread)
    try:
        yield
    finally:
        watch.end()
        if in_main_thread:
            signal.signal(_SIGNAL, before)


class _Watch:
    """Samples the thread that created it."""

    def __init__(self, timeout_ms: int, *, may_exit: bool) -> None:
        self._timeout_ms = timeout_ms
        self._seconds = timeout_ms / 1000
        self._grace = max(self._seconds, _SHORTEST_GRACE_SECONDS)
        self._may_exit = may_exit
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._call: FrameType | None = None
        self._since = 0.0
        self._interrupts = False
        self._thread = threading.Thread(target=self._run, name="dsv2-callback-limit", daemon=True)

    def begin(self, interrupts: bool) -> None:
        """Start sampling. ``interrupts``: whether the watched thread can be interrupted by the signal."""
        self._interrupts = interrupts
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._call = None

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Signal handler. Raises unless the call has returned in the meantime."""
        call = self._call
        while frame is not None:
            if frame is call:
                self._call = None
                raise CallbackTimeout(f"the callback did not return within {self._timeout_ms} ms")
            frame = frame.f_back

    def _run(self) -> None:
        pause = min(self._seconds / 4, _LONGEST_PAUSE_SECONDS)
        interrupted = reported = False
        while not self._over.wait(pause):
            call = _call_of_user(sys._current_frames().get(self._watched))
            now = time.monotonic()
            if call is None or call is not self._call:
                self._call, self._since, interrupted, reported = call, now, False, False
            elif now - self._since >= self._seconds + self._grace:
                self._give_up(call, reported)
                reported = True
            elif now - self._since >= self._seconds and not interrupted:
                interrupted = True
                if self._interrupts:
                    signal.pthread_kill(self._watched, _SIGNAL)
            del call  # it would keep the callback's local variables alive

    def _give_up(self, call: FrameType, reported: bool) -> None:
        if reported:
            return
        stack = "".join(traceback.format_stack(sys._current_frames().get(self._watched)))
        text = f"A callback did not return within {self._timeout_ms} ms and cannot be interrupted:\n{stack}"
        if self._may_exit:
            os.write(2, text.encode(errors="replace"))
            os._exit(_EXIT_CODE)
        _LOG.error("%s", text)


def _call_of_user(frame: FrameType | None) -> FrameType | None:
    """The innermost active call from our packages into user code, or None.

    Generators do not count, because their frames outlive the computation of a value. For a coroutine it is the call of
    the event loop, which lasts until a record is completed.
    """
    while True:
        while frame is not None and _is_ours(frame):
            frame = frame.f_back
        while frame is not None and frame.f_back is not None and not _is_ours(frame.f_back):
            frame = frame.f_back
        if frame is None or not frame.f_code.co_flags & inspect.CO_COROUTINE:
            break
        frame = frame.f_back
    if frame is None or frame.f_back is None or frame.f_code.co_flags & inspect.CO_GENERATOR:
        return None
    return frame


def _is_ours(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _OUR_PACKAGES
