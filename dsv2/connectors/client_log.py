"""Rate-limited logging of the messages of client libraries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_BURST = 3
_PERIOD_SECONDS = 60.0


class ClientLog:
    """Forwards messages to a logger, at most a few of each kind per minute.

    A client that cannot reach its server logs the same message many times per second. The number of suppressed
    messages is appended to the next message of the same kind. The limits apply to all clients of a process, so each
    library shares one instance.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the log.

        Args:
            name: The name of the logger.
            clock: Returns the seconds since an arbitrary point in time.
        """
        self._logger = logging.getLogger(name)
        self._clock = clock
        self._lock = threading.Lock()  # clients log from their own threads
        self._periods: dict[str, _Period] = {}

    def write(self, level: int, kind: str, message: str) -> None:
        """Log ``message`` unless the limit of its ``kind`` is reached. The caller has removed secrets."""
        if not self._logger.isEnabledFor(level):
            return
        with self._lock:
            now = self._clock()
            period = self._periods.get(kind)
            suppressed = 0
            if period is None or now - period.began >= _PERIOD_SECONDS:
                suppressed = 0 if period is None else max(0, period.logged - _BURST)
                period = self._periods[kind] = _Period(now)
            period.logged += 1
            if period.logged > _BURST:
                return
        more = f" (similar messages suppressed: {suppressed})" if suppressed else ""
        self._logger.log(level, "%s%s", message, more)


class _Period:
    """Counts the messages of one kind in one minute."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.logged = 0  # including the suppressed ones
