"""Values that no function can change in place."""

from __future__ import annotations

from dataclasses import fields
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

IMMUTABLE: Final = frozenset((int, float, complex, bool, str, bytes, type(None)))
"""The most frequent of their classes."""
_OTHERS = (Decimal, date, datetime, timedelta, UUID)


def is_immutable(value: Any) -> bool:
    """Return whether ``value`` is known to be immutable, with all its parts."""
    kind = type(value)
    if kind in IMMUTABLE or kind in _OTHERS or issubclass(kind, Enum):
        return True
    return all(map(is_immutable, value)) if isinstance(value, tuple) else is_flat(value)


def is_flat(value: Any) -> bool:
    """Return whether ``value`` is a frozen dataclass with immutable fields."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return False
    return all(type(getattr(value, one.name, None)) in IMMUTABLE for one in fields(value))
