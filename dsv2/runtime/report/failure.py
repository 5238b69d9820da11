"""Turning what a callback raised into an error that says where it happened, and on what."""

from __future__ import annotations

from typing import Any, NoReturn

from dsv2.errors import CorruptDataError, InternalError, RecordMutatedError, SerializationError, UserFunctionError
from dsv2.graph import Operator
from dsv2.runtime.report.short_repr import shorten
from dsv2.spi import FailedCallbackError, FailedRecordError
from dsv2.tracebacks import user_frames

__all__ = ("NOT_OF_THE_USER", "NO_KEY", "NO_RECORD", "raise_user_failure")

NOT_OF_THE_USER = (KeyboardInterrupt, GeneratorExit)
"""What comes out of user code without being a failure of it. Anything else is, ``SystemExit`` included."""

NO_KEY: Any = object()
"""Stands for the key where no key is current."""

NO_RECORD: Any = object()
"""Stands for the record where none is processed."""

_OURS = (UserFunctionError, InternalError, CorruptDataError, SerializationError, RecordMutatedError)


def raise_user_failure(
    operator: Operator,
    subtask: int,
    callback: str,
    error: BaseException,
    *,
    key: Any = NO_KEY,
    record: Any = NO_RECORD,
) -> NoReturn:
    """Raise what ``error`` out of ``callback`` is to the user; call it while handling ``error``.

    An error that has its own words already goes on as it is.
    """
    while isinstance(error, FailedCallbackError | FailedRecordError) and error.__cause__ is not None:
        if isinstance(error, FailedCallbackError):
            callback = error.callback
        else:
            record = error.record
        error = error.__cause__
    if isinstance(error, (*_OURS, *NOT_OF_THE_USER)):
        raise error
    failure = UserFunctionError(
        operator=str(operator),
        callback=callback,
        subtask=subtask,
        location=operator.location,
        cause_type=type(error).__qualname__,
        cause_message=_message(error),
        key=None if key is NO_KEY else shorten(key),
        record=None if record is NO_RECORD else shorten(record),
        traceback_text=user_frames(error),
    )
    failure.cause = error
    raise failure from error


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as worse:
        return f"<its message cannot be shown: __str__ raised {type(worse).__qualname__}>"
