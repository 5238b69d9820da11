"""What users see of the way to an error: their own frames. With ``DSV2_FULL_TRACEBACKS=1`` in the environment, all."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from dsv2.errors import Dsv2Error, UserFunctionError

__all__ = ("short_traceback", "user_frames")

P = ParamSpec("P")
R = TypeVar("R")

_VARIABLE = "DSV2_FULL_TRACEBACKS"
_OUR_PACKAGES = ("dsv2", "runtime_spark")


def short_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """Decorates what users call: an error of ours leaves it without our frames, and without what caused it.

    Frames of the user's that are in between stand below the message then, as a note.
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
    """The part of the traceback of ``error`` that is the user's, as Python prints it."""
    frames = [
        frame
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _OUR_PACKAGES
    ]
    files = {frame.f_code.co_filename for frame in frames}
    summary = traceback.extract_tb(error.__traceback__)
    return "".join(traceback.format_list([entry for entry in summary if entry.filename in files]))


def _shortened(error: Dsv2Error) -> Dsv2Error:
    if not isinstance(error, UserFunctionError):  # which has those frames in its text
        for frames in filter(None, map(user_frames, _chain(error))):
            error.add_note(frames.rstrip())
    error.__context__ = None
    return error.with_traceback(None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """``error`` and what caused it, the first cause first."""
    if error is not None:
        yield from _chain(error.__cause__ or (None if error.__suppress_context__ else error.__context__))
        yield error
