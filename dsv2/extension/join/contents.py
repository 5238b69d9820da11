"""The stored form of the records of joins, for readers of savepoints."""

from __future__ import annotations

from typing import Final

BUFFERED_ROWS: Final = "buffered rows"
"""Interval joins. A row is a list: timestamp (ms), record, and whether it is matched (or emitted as unmatched)."""
TIME: Final = 0
RECORD: Final = 1
MATCHED: Final = 2

LATEST_ROWS: Final = "latest rows"
"""Temporal joins. The entry of a key has these parts. Strings are names of states; numbers from 0 are the runtime's."""
LATEST: Final = -1
WAITING: Final = -2
"""Records, timestamps, and the time of the timer for the timeout."""
