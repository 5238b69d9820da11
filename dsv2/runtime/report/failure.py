"""Converts an exception of a callback into an error that names the operator, callback, key and record."""

from __future__ import annotations

from typing import Any, NoReturn

from dsv2.base.record_position import RecordPosition
from dsv2.checks.tracebacks import user_frames
from dsv2.errors import CorruptDataError, InternalError, RecordMutatedError, SerializationError, UserFunctionError
from dsv2.graph import Operator
from dsv2.runtime.report.attribute_advice import as_misuse
from dsv2.runtime.report.short_repr import shorten
from dsv2.spi import FailedCallbackError, FailedRecordError

NOT_OF_THE_USER = (KeyboardInterrupt, GeneratorExit)
"""Exceptions that are not failures of user code. All others are, including ``SystemExit``."""

NO_KEY: Any = object()
"""The key when there is no current key."""

NO_RECORD: Any = object()
"""The record when none is being processed."""

_OURS = (UserFunctionError, InternalError, CorruptDataError, SerializationError, RecordMutatedError)


def raise_user_failure(
    operator: Operator,
    subtask: int,
    callback: str,
    error: BaseException,
    *,
    key: Any = NO_KEY,
    record: Any = NO_RECORD,
    position: RecordPosition | None = None,
) -> NoReturn:
    """Raise the error that the user sees for an exception of a callback. Call it while handling ``error``.

    Errors of dsv2 that already describe the failure are raised unchanged.

    Args:
        operator: The operator whose callback failed.
        subtask: The index of its subtask.
        callback: The name of the callback.
        error: The exception. Wrappers raised by extensions are unwrapped.
        key: The current key, if there is one.
        record: The record being processed, if there is one.
        position: Where that record is in its source, if this is known.

    Raises:
        UserFunctionError: For failures of user code.
    """
    window = None
    while isinstance(error, FailedCallbackError | FailedRecordError) and error.__cause__ is not None:
        if isinstance(error, FailedCallbackError):
            callback, window = error.callback, error.window
        else:
            record = error.record
        error = error.__cause__
    if isinstance(error, (*_OURS, *NOT_OF_THE_USER)):
        raise error
    if isinstance(error, AttributeError):
        error = as_misuse(error)
    failure = UserFunctionError(
        operator=str(operator),
        callback=callback,
        subtask=subtask,
        location=operator.location,
        cause_type=type(error).__qualname__,
        cause_message=_message(error),
        key=None if key is NO_KEY else shorten(key),
        record=None if record is NO_RECORD else shorten(record),
        window=window,
        traceback_text=user_frames(error),
        position=position,
    )
    failure.cause = error
    failure.failed = record, key
    raise failure from error


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as worse:
        return f"<the message is not available: __str__ raised {type(worse).__qualname__}>"
