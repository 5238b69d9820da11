"""Time to live of state values (Flink ``StateTtlConfig``)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Literal

from dsv2.checks.arguments import as_choice, as_milliseconds
from dsv2.errors import StateDeclarationError


class TtlUpdate(Enum):
    """The accesses that restart the time to live of a value."""

    ON_CREATE_AND_WRITE = "on-create-and-write"
    ON_READ_AND_WRITE = "on-read-and-write"


class TtlTimeCharacteristic(Enum):
    """The time by which values expire (Flink ``StateTtlConfig.TtlTimeCharacteristic``, which has processing time only).

    ``PROCESSING_TIME``: the wall clock. ``EVENT_TIME``: a value is updated at the timestamp of the current record or
    event timer, or at event time if that is later, and expires when event time has reached the end of its time to live.
    """

    PROCESSING_TIME = "processing-time"
    EVENT_TIME = "event-time"


@dataclass(frozen=True, slots=True, init=False)
class StateTtl:
    """The time to live of a state.

    An expired value is never returned, and is removed in the background. Elements of a list and entries of a map expire
    individually.

    Args:
        duration: The time after the last update at which a value expires, at least 1 ms.
        update: Which accesses count as an update. Default: creation and writes.
        time_characteristic: Processing time (default) or event time. The end of the input expires nothing.

    Raises:
        StateDeclarationError: An argument is invalid.
    """

    duration: timedelta
    update: TtlUpdate
    time_characteristic: TtlTimeCharacteristic

    def __init__(
        self,
        duration: timedelta,
        update: TtlUpdate | Literal["on-create-and-write", "on-read-and-write"] = TtlUpdate.ON_CREATE_AND_WRITE,
        time_characteristic: (
            TtlTimeCharacteristic | Literal["processing-time", "event-time"]
        ) = TtlTimeCharacteristic.PROCESSING_TIME,
    ) -> None:
        as_milliseconds(duration, "duration", at_least=1, error=StateDeclarationError)
        object.__setattr__(self, "duration", duration)
        object.__setattr__(self, "update", as_choice(TtlUpdate, update, "update", error=StateDeclarationError))
        chosen = as_choice(
            TtlTimeCharacteristic, time_characteristic, "time_characteristic", error=StateDeclarationError
        )
        object.__setattr__(self, "time_characteristic", chosen)

    @property
    def duration_ms(self) -> int:
        """The duration in milliseconds."""
        return as_milliseconds(self.duration, "duration")
