"""What a test may want to happen to a job at some place of its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dsv2.errors import ConfigurationError

__all__ = ("Crash", "Interruption", "Pause", "Stop")


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing comes for ``ms`` milliseconds. Locally nobody waits: the job's clock is set forward."""

    ms: int

    def __post_init__(self) -> None:
        if self.ms < 1:
            raise ConfigurationError(f"A pause takes at least 1 ms, not {self.ms}.")


@dataclass(frozen=True, slots=True)
class Stop:
    """The run of the job ends, but not its input: started again from its checkpoint it goes on behind this place."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The job fails with ``message``. Started again from its checkpoint it goes on behind this place."""

    message: str = "a crash on purpose"


Interruption: TypeAlias = Pause | Stop | Crash
