"""Parts of the progress, the summary and reports as objects of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

__all__ = ("Line", "line_of")

Line: TypeAlias = Mapping[str, Any]
"""The attributes of a part, and texts for the page."""


def line_of(part: object, **others: object) -> Line:
    """Return the attributes of ``part``. ``others``: Further ones, and those that are texts on the page."""
    return {**msgspec.to_builtins(part), **others}
