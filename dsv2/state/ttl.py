"""Time to live of state values (Flink ``StateTtlConfig``)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Literal

from dsv2.arguments import as_choice, as_milliseconds
from dsv2.errors import StateDeclarationError

__all__ = ("StateTtl", "TtlUpdate")


class TtlUpdate(Enum):
    """Which accesses restart the time to live of a value."""

    ON_CREATE_AND_WRITE = "on-create-and-write"
    ON_READ_AND_WRITE = "on-read-and-write"


@dataclass(frozen=True, slots=True, init=False)
class StateTtl:
    """The time to live of a state.

    An expired value is never returned, and is removed in the background. Elements of a list and entries of a map expire
    individually.

    Args:
        duration: The processing time after the last update at which a value expires, at least 1 ms.
        update: Which accesses count as an update. Default: creation and writes.

    Raises:
        StateDeclarationError: ``duration`` or ``update`` is invalid.
    """

    duration: timedelta
    update: TtlUpdate

    def __init__(
        self,
        duration: timedelta,
        update: TtlUpdate | Literal["on-create-and-write", "on-read-and-write"] = TtlUpdate.ON_CREATE_AND_WRITE,
    ) -> None:
        as_milliseconds(duration, "duration", at_least=1, error=StateDeclarationError)
        object.__setattr__(self, "duration", duration)
        object.__setattr__(self, "update", as_choice(TtlUpdate, update, "update", error=StateDeclarationError))

    @property
    def duration_ms(self) -> int:
        """The duration in milliseconds."""
        return as_milliseconds(self.duration, "duration")
