"""Errors of dsv2 as text, which carries them from a worker process to the process that started it."""

from __future__ import annotations

import json

import dsv2.errors
from dsv2.base.notebook_cells import with_cells
from dsv2.errors import Dsv2Error, InternalError, UserFunctionError


def to_text(error: Dsv2Error) -> str:
    """Return ``error`` as JSON, with its cause if that is an error of dsv2 as well."""
    fields = error.as_json() if isinstance(error, UserFunctionError) else {"message": str(error)}
    if isinstance(error.__cause__, Dsv2Error):
        fields["cause"] = to_text(error.__cause__)
    return json.dumps({"type": type(error).__name__, **fields})


def from_text(text: str) -> Dsv2Error:
    """Return the error of ``to_text``."""
    fields = json.loads(text)
    kind, cause = getattr(dsv2.errors, fields.pop("type"), InternalError), fields.pop("cause", None)
    rebuilt: Dsv2Error
    if kind is UserFunctionError:
        rebuilt = UserFunctionError.from_json(fields | {"traceback_text": with_cells(fields["traceback_text"])})
    else:
        rebuilt = kind(fields["message"])
    rebuilt.__cause__ = None if cause is None else from_text(cause)
    return rebuilt
