"""Time to live: how long a state keeps a value that nobody writes (Flink ``StateTtlConfig``)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from dsv2.errors import StateDeclarationError

__all__ = ("StateTtl", "TtlUpdate")

_MILLISECOND = timedelta(milliseconds=1)


class TtlUpdate(Enum):
    """What makes a value's time begin anew."""

    ON_CREATE_AND_WRITE = "ON_CREATE_AND_WRITE"
    ON_READ_AND_WRITE = "ON_READ_AND_WRITE"


@dataclass(frozen=True, slots=True)
class StateTtl:
    """A value expires ``duration`` (whole ms, or a ``timedelta``) of processing time after its last update.

    An expired value is never returned, and is removed without anybody asking for it. Elements of a list and entries of
    a map expire one by one. Raises ``StateDeclarationError`` for a duration that is not at least one whole millisecond.
    """

    duration: int | timedelta
    update: TtlUpdate = TtlUpdate.ON_CREATE_AND_WRITE

    def __post_init__(self) -> None:
        is_time = isinstance(self.duration, int | timedelta) and not isinstance(self.duration, bool)
        if not is_time or self.duration_ms < 1:
            raise StateDeclarationError(
                f"A time to live is a whole number of milliseconds, at least 1, or a timedelta, not {self.duration!r}."
            )
        if not isinstance(self.update, TtlUpdate):
            raise StateDeclarationError(f"What updates a time to live is a TtlUpdate, not {self.update!r}.")

    @property
    def duration_ms(self) -> int:
        """The duration in milliseconds."""
        return self.duration if isinstance(self.duration, int) else self.duration // _MILLISECOND
