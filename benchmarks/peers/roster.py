"""Who takes part in which job, with how much at once, and what is to be reached."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.peers.environments import OWN, Environment

__all__ = ("DSV2", "PLAIN", "TABLES", "Contestant", "Job", "Target")

DSV2, PLAIN = "dsv2", "plain loop"
"""Groups that every job has."""
TABLES = "dsv2, on tables"
"""Functions that take Arrow tables."""


@dataclass(frozen=True)
class Contestant:
    """A program in a certain set-up."""

    name: str
    group: str
    """Set-ups of the same contestant; a target counts against the fastest of them."""
    program: str
    environment: Environment = OWN
    parallelism: int = 1
    mode: str = ""
    most: tuple[tuple[int, int], ...] = ()
    """Of records in a batch, from so many keys on: (keys, records). For those that need minutes for more."""
    kinds: tuple[str, ...] = ("tuple",)
    in_short: bool = True
    """Whether it takes part in the short form."""
    near: float = 0.0
    """How far its checksum may be off, as a part: above 0 where several subtasks do not keep step exactly."""

    def records(self, wanted: int, keys: int) -> int:
        """In a batch."""
        return min([wanted, *(records for least, records in self.most if keys >= least)])


@dataclass(frozen=True)
class Target:
    """dsv2 is to reach so many times the throughput of the fastest of a group."""

    group: str
    times: float
    keys: int
    pace: float = float("inf")
    """Records per second that are enough whatever the others do."""
    ours: str = DSV2
    """The group of dsv2 that is to reach it."""


@dataclass(frozen=True)
class Job:
    """What all of them do."""

    name: str
    title: str
    contestants: tuple[Contestant, ...]
    keys: tuple[int, ...]
    targets: tuple[Target, ...] = ()
    kinds: tuple[str, ...] = ("tuple",)
    """Of records; all of them with the fewest keys, the first one with the others."""
    absent: tuple[tuple[str, str], ...] = ()
    """Who does not take part, and why not."""
    short: int = 20_000
    """Records in a batch of the short form."""
