"""The interruptions of a job at positions of a ``TestSource``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from dsv2.checks.arguments import as_milliseconds
from dsv2.errors import JobError
from dsv2.sources import Halt, ReadSchedule


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing arrives for ``duration``. The local runtime does not wait: it sets the job's clock forward."""

    duration: timedelta

    def __post_init__(self) -> None:
        as_milliseconds(self.duration, "duration", at_least=1)


@dataclass(frozen=True, slots=True)
class Stop:
    """The run of the job ends, but not its input. After a restart from the checkpoint, the job continues here."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The job fails with ``message``. After a restart from the checkpoint, the job continues here."""

    message: str = "an intended crash"


Interruption: TypeAlias = Pause | Stop | Crash


class InterruptedReading(ReadSchedule):
    """The interruptions of one source by index. One at the start position of a run was handled by the previous run."""

    def __init__(self, interruptions: Mapping[int, Interruption], described: str) -> None:
        self._interruptions = interruptions
        self._described = described
        self._began: int | None = None
        self._pause: tuple[int, int] | None = None  # its position and its end in ms
        self.ends_run = any(isinstance(interruption, Stop) for interruption in interruptions.values())

    def begin(self, position: int) -> None:
        if self._began is None:
            self._began = position

    def next_halt(self, position: int) -> int | None:
        return min((index for index in self._interruptions if index > position), default=None)

    def halt(self, position: int, now_ms: int) -> Halt | None:
        interruption = self._interruptions.get(position)
        if interruption is None or self._began is None or position <= self._began:
            return None
        if isinstance(interruption, Crash):
            raise JobError(f"The source {self._described}, crashed: {interruption.message}")
        if isinstance(interruption, Stop):
            return Halt(until_ms=None)
        if self._pause is None or self._pause[0] != position:
            self._pause = position, now_ms + as_milliseconds(interruption.duration, "duration")
        return Halt(self._pause[1]) if now_ms < self._pause[1] else None
