"""Types with ``| None``."""

from __future__ import annotations

import types
import typing
from typing import Any


def without_none(hint: Any) -> tuple[Any, bool]:
    """Return the type without ``| None``, and whether it had ``| None``."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [argument for argument in typing.get_args(hint) if argument is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False
