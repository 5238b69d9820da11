"""Turning what a callback raised into an error that says where it happened, and on what."""

from __future__ import annotations

import traceback
from typing import Any, NoReturn

from dsv2.errors import CorruptDataError, InternalError, SerializationError, UserFunctionError
from dsv2.functions import FailedCallbackError, FailedRecordError
from dsv2.graph import Operator
from dsv2.runtime.contexts import NO_KEY
from dsv2.runtime.shortened import shorten

__all__ = ("raise_user_failure",)

_OURS = (UserFunctionError, InternalError, CorruptDataError, SerializationError)
_ABSENT: Any = object()
_OUR_PACKAGES = ("dsv2", "runtime_spark")


def raise_user_failure(
    operator: Operator,
    subtask: int,
    callback: str,
    error: BaseException,
    *,
    key: Any = NO_KEY,
    record: Any = _ABSENT,
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
    if isinstance(error, _OURS) or not isinstance(error, Exception | SystemExit):
        raise error
    raise UserFunctionError(
        operator=str(operator),
        callback=callback,
        subtask=subtask,
        location=operator.location,
        cause_type=type(error).__qualname__,
        cause_message=_message(error),
        key=None if key is NO_KEY else shorten(key),
        record=None if record is _ABSENT else shorten(record),
        traceback_text=_user_frames(error),
    ) from error


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as worse:
        return f"<its message cannot be shown: __str__ raised {type(worse).__qualname__}>"


def _user_frames(error: BaseException) -> str:
    frames = [
        frame
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _OUR_PACKAGES
    ]
    if not frames:
        return ""
    summary = traceback.extract_tb(error.__traceback__)
    files = {frame.f_code.co_filename for frame in frames}
    return "".join(traceback.format_list([entry for entry in summary if entry.filename in files]))
