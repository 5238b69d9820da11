"""Tracebacks that show users only their own frames. ``DSV2_FULL_TRACEBACKS=1`` in the environment shows all frames."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec

from dsv2.base.notebook_cells import with_cells
from dsv2.base.type_variables import R
from dsv2.errors import Dsv2Error, UserFunctionError

P = ParamSpec("P")

_VARIABLE = "DSV2_FULL_TRACEBACKS"
_NOT_OF_USERS = ("dsv2", "runtime_spark", "importlib", "_frozen_importlib", "_frozen_importlib_external")


def short_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public method so that a ``Dsv2Error`` leaves it without frames of dsv2 and without its causes.

    User frames between the call and the error are added to the error as a note.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True  # for pytest
        try:
            return method(*args, **kwargs)
        except Dsv2Error as error:
            if os.environ.get(_VARIABLE, "0") != "0":
                raise
            raise _shortened(error) from None

    return call


def user_frames(error: BaseException) -> str:
    """The user's frames in the traceback of ``error``, without those of an import, formatted as Python prints them."""
    frames = [
        frame
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _NOT_OF_USERS
    ]
    files = {frame.f_code.co_filename for frame in frames}
    summary = traceback.extract_tb(error.__traceback__)
    return with_cells("".join(traceback.format_list([entry for entry in summary if entry.filename in files])))


def _shortened(error: Dsv2Error) -> Dsv2Error:
    if not isinstance(error, UserFunctionError):  # its text has these frames already
        for frames in filter(None, map(user_frames, _chain(error))):
            error.add_note(frames.rstrip())
    error.__context__ = None
    return error.with_traceback(None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """``error`` and its causes, the root cause first."""
    if error is not None:
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        yield from _chain(None if cause is error else cause)  # an error that was converted to itself is its cause
        yield error
