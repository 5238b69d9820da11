"""Errors by which extensions report which part of the user code failed."""

from __future__ import annotations


class FailedCallbackError(Exception):
    """Raised by extensions from an error that ``callback`` of the user's function raised.

    ``window``: The window that was processed, for the error. None: there was none.
    """

    def __init__(self, callback: str, window: str | None = None) -> None:
        super().__init__(callback)
        self.callback = callback
        self.window = window


class FailedRecordError(Exception):
    """Raised by batch functions and extensions from an error that user code raised for ``record``."""

    def __init__(self, record: object) -> None:
        super().__init__(record)
        self.record = record
