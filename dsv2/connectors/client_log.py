"""What client libraries log, as messages of ``logging``: without secrets, and not too many of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ("ClientLog",)

_BURST = 3
_PERIOD_SECONDS = 60.0


class ClientLog:
    """Passes messages on to the logger ``name``, the first few of each kind in a minute.

    A client that cannot reach its server says so many times a second. How many messages were left out is added to the
    next one of their kind. The limits hold for all clients of a process together, so keep one object for each library.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds from any point in time."""
        self._logger = logging.getLogger(name)
        self._clock = clock
        self._lock = threading.Lock()  # clients log from threads of their own
        self._periods: dict[str, _Period] = {}

    def write(self, level: int, kind: str, message: str) -> None:
        """Log ``message``, in which there is no secret, unless there were too many of its ``kind``."""
        if not self._logger.isEnabledFor(level):
            return
        with self._lock:
            now = self._clock()
            period = self._periods.get(kind)
            left_out = 0
            if period is None or now - period.began >= _PERIOD_SECONDS:
                left_out = 0 if period is None else period.left_out
                period = self._periods[kind] = _Period(now)
            period.logged += 1
            if period.logged > _BURST:
                period.left_out += 1
                return
        more = f" ({left_out} more like this were left out before.)" if left_out else ""
        self._logger.log(level, "%s%s", message, more)


class _Period:
    """A minute in which messages of one kind were logged, or left out."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.logged = 0
        self.left_out = 0
