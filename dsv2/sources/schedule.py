"""Where and for how long the reading of a source halts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

__all__ = ("Halt", "ReadSchedule")


@dataclass(frozen=True, slots=True)
class Halt:
    """Nothing is read before ``until_ms`` of the job's clock; if that is None, for the rest of the run."""

    until_ms: int | None


class ReadSchedule(ABC):
    """Where an indexed source halts in one run of a job. The runtime calls it between micro-batches.

    A position is the index of the next record, or -1 before anything was read.
    """

    ends_run = False
    """Whether one of the halts lasts for the rest of a run."""

    @abstractmethod
    def begin(self, position: int) -> None:
        """The run begins at ``position``. Only the first call counts."""

    @abstractmethod
    def next_halt(self, position: int) -> int | None:
        """The first index after ``position`` at which a micro-batch has to end."""

    @abstractmethod
    def halt(self, position: int, now_ms: int) -> Halt | None:
        """The halt at ``position``, or None if there is none or it is over. Raises ``JobError`` to fail the job."""
