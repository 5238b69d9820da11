"""Ctrl-C and SIGTERM, noted instead of raised."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIG_DFL, SIGINT, SIGTERM, signal
from types import FrameType


class NotedSignals:
    """The signals to stop that a program has received.

    Attributes:
        interrupts: How often Ctrl-C was pressed.
        terminations: How often SIGTERM was received.
    """

    def __init__(self) -> None:
        self.interrupts = 0
        self.terminations = 0

    @property
    def count(self) -> int:
        """The number of signals so far."""
        return self.interrupts + self.terminations

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Count a signal. The handler of signals."""
        if number == SIGINT:
            self.interrupts += 1
        else:
            self.terminations += 1


@contextmanager
def signals_noted() -> Iterator[NotedSignals]:
    """Within this context, Ctrl-C and SIGTERM are only noted. Use it for everything that calls Spark.

    An exception within a call to Spark would break the connection to its JVM, or leave the JVM behind while it starts.
    Pass what it yields to ``watch``, which stops the job. Python handles signals in the main thread only, so in
    another thread nothing is noted.
    """
    noted = NotedSignals()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = {number: signal(number, noted.note) for number in (SIGINT, SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal(number, SIG_DFL if handler is None else handler)  # None: it was not set by Python
