"""The classes that describe jobs, contestants and targets."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.peers.environments import OWN, Environment

__all__ = ("DSV2", "LOCAL", "PLAIN", "TABLES", "Contestant", "Job", "Target")

DSV2, PLAIN = "dsv2", "plain loop"
"""The groups of every job."""
LOCAL = "dsv2, local"
"""The group of the local runtime, with a durable checkpoint."""
TABLES = "dsv2, on tables"
"""The group of functions on Arrow tables."""


@dataclass(frozen=True)
class Contestant:
    """A program in a given set-up."""

    name: str
    group: str
    """The name shared by set-ups of the same contestant. Targets refer to the fastest of them."""
    program: str
    environment: Environment = OWN
    parallelism: int = 1
    mode: str = ""
    most: tuple[tuple[int, int], ...] = ()
    """Limits of records in a batch, from a number of keys on: (keys, records). For contestants that need minutes."""
    kinds: tuple[str, ...] = ("tuple",)
    in_short: bool = True
    """True if it is part of the short form."""
    near: float = 0.0
    """The allowed relative deviation of the checksum. Above 0 if subtasks progress independently."""

    def records(self, wanted: int, keys: int) -> int:
        """The number of records in a batch."""
        return min([wanted, *(records for least, records in self.most if keys >= least)])


@dataclass(frozen=True)
class Target:
    """A target: dsv2 must reach ``times`` the throughput of the fastest contestant of ``group``."""

    group: str
    times: float
    keys: int
    pace: float = float("inf")
    """A throughput in records per second that is always sufficient."""
    ours: str = DSV2
    """The group of dsv2 that must reach the target."""


@dataclass(frozen=True)
class Job:
    """A job with its contestants."""

    name: str
    title: str
    contestants: tuple[Contestant, ...]
    keys: tuple[int, ...]
    targets: tuple[Target, ...] = ()
    kinds: tuple[str, ...] = ("tuple",)
    """The kinds of records. Only the first one is measured with more than the fewest keys."""
    absent: tuple[tuple[str, str], ...] = ()
    """The peers that are not measured, with the reason."""
    short: int = 20_000
    """The number of records in a batch of the short form."""
