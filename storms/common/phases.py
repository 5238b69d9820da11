"""The points at which a job is killed, recognised by the files that Spark and the sinks have written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ("BATCH_PHASES", "START_PHASES", "Phase", "batch_phases")


@dataclass(frozen=True)
class Phase:
    """A point in the life of a job.

    Attributes:
        name: The name of the phase.
        reached: ``reached(folder, batch)`` returns whether the job has reached the phase.
        before_commit: Whether a kill counts only if the micro-batch has not been committed.
        tail: The maximum random wait after the phase is reached, in seconds.
    """

    name: str
    reached: Callable[[Path, int], bool]
    before_commit: bool = True
    tail: float = 0.0


def _exists(*places: str) -> Callable[[Path, int], bool]:
    """Return a predicate: there is a file at one of ``places``."""

    def reached(folder: Path, batch: int) -> bool:
        patterns = (place.format(batch=batch, version=batch + 1) for place in places)
        return any(next(folder.glob(pattern), None) is not None for pattern in patterns)

    return reached


def _written(sink: str) -> Callable[[Path, int], bool]:
    """Return a predicate: a sink has written a micro-batch. One without records leaves nothing."""
    done = f"{sink}/_dsv2/data/{{batch}}-*/_SUCCESS"
    return _exists(done, f"{sink}/{{batch:010}}-*", "checkpoint/commits/{batch}")


START_PHASES: Sequence[Phase] = (
    Phase("checkpoint folder made", _exists("checkpoint")),
    Phase("lease taken", _exists("checkpoint/dsv2/drivers/*.json")),
    Phase("record written", _exists("checkpoint/dsv2/job/*.json")),
    Phase("metadata", _exists("checkpoint/metadata")),
)
"""The phases of a first start, in order."""

_LOGGED = _exists("checkpoint/offsets/{batch}")
BATCH_PHASES = ("offsets", "state", "sink begun", "sink done", "last sink done", "commits", "random")


def batch_phases(sinks: Sequence[str]) -> dict[str, Phase]:
    """The phases of a micro-batch of a job that writes files to these folders in this order."""
    first, last = sinks[0], sinks[-1]
    phases = (
        Phase("offsets", _LOGGED),
        Phase("state", _exists("checkpoint/state/*/*/{version}[._]*")),
        Phase("sink begun", _exists(f"{first}/_dsv2/data/{{batch}}-*", f"{first}/{{batch:010}}-*")),
        Phase("sink done", _written(first)),
        Phase("last sink done", _written(last)),
        Phase("commits", _exists("checkpoint/commits/{batch}"), before_commit=False),
        Phase("random", _LOGGED, before_commit=False, tail=1.5),
    )
    return {phase.name: phase for phase in phases}
