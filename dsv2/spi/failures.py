"""How extensions say which part of user code has failed."""

from __future__ import annotations

__all__ = ("FailedCallbackError", "FailedRecordError")


class FailedCallbackError(Exception):
    """Raised by extensions, from what ``callback`` of the user's function raised."""

    def __init__(self, callback: str) -> None:
        super().__init__(callback)
        self.callback = callback


class FailedRecordError(Exception):
    """Raised by functions that take batches and by extensions, from what user code raised on ``record``."""

    def __init__(self, record: object) -> None:
        super().__init__(record)
        self.record = record
