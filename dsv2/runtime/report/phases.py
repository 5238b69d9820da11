"""Measures the phases of micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from dsv2.base.clock import elapsed_ns

# The names of phases. Those of the levels are between the second and the third.
PLANNING: Final = "planning"
SOURCE: Final = "source"
SINKS: Final = "sinks"
COMMIT: Final = "commit"

_NS_PER_MS = 1_000_000


def level(depth: int) -> str:
    """Return the name of the phase of the chains at ``depth``, from 1."""
    return f"level {depth}"


def names_of_phases(levels: int) -> list[str]:
    """Return the names of all phases in order. ``levels``: The number of levels of the plan."""
    return [PLANNING, SOURCE, *map(level, range(1, levels + 1)), SINKS, COMMIT]


class Phases:
    """The times of the phases of one micro-batch in this thread. ``elapsed``: Returns the time in ns."""

    def __init__(self, levels: int, elapsed: Callable[[], int] = elapsed_ns) -> None:
        self.ns = dict.fromkeys(names_of_phases(levels), 0)
        self._elapsed = elapsed
        self._began = elapsed()

    @contextmanager
    def measured(self, phase: str) -> Iterator[None]:
        """Add the time of the context to ``phase``."""
        began = self._elapsed()
        yield
        self.ns[phase] += self._elapsed() - began

    def end(self) -> tuple[float, Mapping[str, float]]:
        """Return the duration of the micro-batch and of its phases in ms, and begin the next one."""
        now = self._elapsed()
        duration, self._began = (now - self._began) / _NS_PER_MS, now
        times = {phase: ns / _NS_PER_MS for phase, ns in self.ns.items()}
        self.begin()
        return duration, times

    def begin(self) -> None:
        """Begin a micro-batch."""
        self._began = self._elapsed()
        for phase in self.ns:
            self.ns[phase] = 0
