"""The phases of an upgrade, recognised by the files of savepoints, checkpoints and sinks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ("PHASES", "Phase", "Scene", "phase_reached", "attempt")


@dataclass(frozen=True)
class Scene:
    """The folders and versions of an upgrade.

    Attributes:
        folder: The folder of the life.
        place: The new savepoint, or the new checkpoint or generation.
        before: The previous generation; None: there is none.
        newest: The last micro-batch that was logged there.
        discarded: When the last file of an earlier attempt in ``place`` was written.
    """

    folder: Path
    place: Path
    before: Path | None = None
    newest: int = -1
    discarded: int = 0


@dataclass(frozen=True)
class Phase:
    """A phase of an upgrade. ``is_counted``: Whether a kill in it counts; otherwise the upgrade is over."""

    name: str
    reached: Callable[[Scene], bool]
    is_counted: bool = True


def file_times(place: Path) -> list[int]:
    """Return the times at which the files below ``place`` were written, in order."""
    found = []
    for file in place.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # the job deletes it
            found.append(file.stat().st_mtime_ns if file.is_file() else 0)
    return sorted(filter(None, found))


def attempt(generation: Path) -> int:
    """Return the time of the last file of the present attempt to begin a generation; 0 if there is none."""
    return max(file_times(generation), default=0)


def first_batch(generation: Path) -> int:
    """The number that sinks give to the first micro-batch of a generation."""
    records = sorted(generation.glob("dsv2/job/*.json"))
    return int(json.loads(records[-1].read_text())["batch_id"]) + 1 if records else 0


def phase_reached(phases: Sequence[Phase], scene: Scene) -> Phase | None:
    """The last of ``phases`` that the upgrade has reached."""
    return next((phase for phase in reversed(phases) if phase.reached(scene)), None)


def _has(name: str) -> Callable[[Scene], bool]:
    if "*" in name:
        return lambda scene: next(scene.place.glob(name), None) is not None
    return lambda scene: (scene.place / name).exists()


def _in_sink(*places: str) -> Callable[[Scene], bool]:
    """Return a predicate: the first micro-batch has written to one of ``places`` of a sink."""

    def reached(scene: Scene) -> bool:
        if not (scene.place / "offsets/0").exists():
            return False
        patterns = (place.format(first=first_batch(scene.place)) for place in places)
        return any(next(scene.folder.glob(pattern), None) is not None for pattern in patterns)

    return reached


def _waits_at(gate: str) -> Callable[[Scene], bool]:
    return lambda scene: (scene.folder / f"{gate}.waiting").exists()


def _of_attempt(phase: Phase) -> Phase:
    def reached(scene: Scene) -> bool:
        times = file_times(scene.place)
        return bool(times) and times[0] > scene.discarded and phase.reached(scene)

    return Phase(phase.name, reached, phase.is_counted)


def _cleanup(reached: Callable[[Scene], bool]) -> Callable[[Scene], bool]:
    return lambda scene: (scene.place / "commits/0").exists() and reached(scene)


def _has_lost_newest(scene: Scene) -> bool:
    assert scene.before is not None
    return not (scene.before / f"offsets/{scene.newest}").exists()


def _has_lost_commits(scene: Scene) -> bool:
    assert scene.before is not None
    return not (scene.before / "commits").exists()


_FIRST_MICRO_BATCH = (
    Phase("record written", _has("dsv2/job/*.json")),
    Phase("metadata", _has("metadata")),
    Phase("offsets", _has("offsets/0")),
    Phase("state", _has("state/*/*/1[._]*")),
    Phase("files begun", _in_sink("counted/_dsv2/data/{first}-*", "counted/{first:010}-*")),
    Phase("files written", _in_sink("total/_dsv2/data/{first}-*/_SUCCESS", "total/{first:010}-*")),
    Phase("Kafka begun", _waits_at("message")),
    Phase("Kafka written", _waits_at("row")),
)

PHASES = {
    "create": (
        Phase("tables begun", _has("state/0")),
        Phase("a table written", _has("state/0/_SUCCESS")),
        Phase("more tables written", _has("state/1/_SUCCESS")),
        Phase("savepoint complete", _has("savepoint.json")),
    ),
    "restore": (
        Phase("lease taken", _has("dsv2/drivers/*.json")),
        *_FIRST_MICRO_BATCH,
        Phase("committed", _has("commits/0")),
    ),
    "migrate": tuple(
        map(
            _of_attempt,
            (
                Phase("tables begun", _has("savepoint/state/0")),
                Phase("a table written", _has("savepoint/state/0/_SUCCESS")),
                Phase("savepoint complete", _has("savepoint/savepoint.json")),
                *_FIRST_MICRO_BATCH,
                Phase("committed", _has("commits/0")),
                Phase("cleanup begun", _cleanup(_has_lost_newest)),
                Phase("cleanup half done", _cleanup(_has_lost_commits)),
                Phase("cleaned up", _cleanup(lambda scene: not _has("savepoint")(scene)), is_counted=False),
            ),
        )
    ),
}
"""The phases of each kind of upgrade, in their order. A gate is shut only for the phase that it defines."""
