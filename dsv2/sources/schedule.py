"""Halts in the reading of an indexed source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Halt:
    """A halt of the source.

    Attributes:
        until_ms: The time of the job's clock at which reading continues, in ms. None: not in this run.
    """

    until_ms: int | None


class ReadSchedule(ABC):
    """The halts of an indexed source in one run of a job. The runtime calls it between micro-batches.

    A position is the index of the next record, or -1 before the first read.
    """

    ends_run = False
    """True if one of the halts lasts until the end of the run."""

    @abstractmethod
    def begin(self, position: int) -> None:
        """Begin the run at ``position``. Only the first call has an effect."""

    @abstractmethod
    def next_halt(self, position: int) -> int | None:
        """Return the first index after ``position`` at which a micro-batch must end; None if there is none."""

    @abstractmethod
    def halt(self, position: int, now_ms: int) -> Halt | None:
        """Return the current halt.

        Args:
            position: The position of the source.
            now_ms: The time of the job's clock, in ms.

        Returns:
            The halt at ``position``; None if there is none or it is over.

        Raises:
            JobError: The schedule makes the job fail here.
        """
