"""Attempts at a request, with pauses between them."""

from __future__ import annotations

import time
from collections.abc import Iterator

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 10.0


def attempts(retries: int) -> Iterator[int]:
    """Yield the number of retries that are left, from ``retries`` to 0, after pauses of 0.1 to 10 seconds."""
    pause = _FIRST_PAUSE_SECONDS
    for left in range(retries, 0, -1):
        yield left
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    yield 0
