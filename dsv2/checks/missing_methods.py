"""Errors of methods that an object lacks, with what to call instead."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dsv2.errors import PlanError


class MissingMethodError(PlanError, AttributeError):
    """A stream or builder has no such method. The message says what to call instead."""


def missing_method(owner: object, kind: str, name: str, advice: Mapping[str, str]) -> AttributeError:
    """Return the error of ``owner.name``, for ``__getattr__``.

    Args:
        owner: The object.
        kind: What the error calls it.
        name: The missing attribute.
        advice: What to call instead, by names in snake case.
    """
    snake = re.sub("(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    if snake != name and not name.startswith("_") and hasattr(type(owner), snake):
        return MissingMethodError(f"{kind} has no {name}. Call {snake}.")
    if snake in advice:
        return MissingMethodError(f"{kind} has no {name}. {advice[snake]}")
    return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=owner)
