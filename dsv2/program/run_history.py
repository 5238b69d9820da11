"""Records the runs of a checkpoint that sinks must recognize."""

from __future__ import annotations

from dsv2.errors import CorruptDataError
from dsv2.folders import Folder
from dsv2.program.checked_json import from_json, to_json
from dsv2.sinks import SinkRunInfo

__all__ = ("begin_run",)

_RUNS = "dsv2/runs.json"


def begin_run(checkpoint: Folder, run_id: str, batch_id: int, first_batch: int = 0, *, repeats: bool) -> SinkRunInfo:
    """Record that the run ``run_id`` begins, and describe it for sinks.

    The checkpoint lists the runs that may have written the micro-batch with which the last run began. A micro-batch
    that is repeated was planned by the last run, or by an earlier run that began with it.

    Args:
        checkpoint: The checkpoint.
        run_id: The run.
        batch_id: The micro-batch with which it begins.
        first_batch: The number that sinks give to the first micro-batch of the checkpoint.
        repeats: Whether an earlier run has begun ``batch_id``.

    Raises:
        CorruptDataError: The list of runs is damaged or missing.
    """
    earlier: list[str] = []
    if repeats:
        number, runs = _read(checkpoint)
        earlier = runs if number == batch_id else runs[-1:]
    entry = {"first_batch": batch_id, "runs": [*earlier, run_id]}
    checkpoint.write(_RUNS, to_json(entry))
    return SinkRunInfo(run_id, first_batch + batch_id, tuple(earlier))


def _read(checkpoint: Folder) -> tuple[int, list[str]]:
    data = checkpoint.read(_RUNS)
    try:
        entry = from_json(data)
        return int(entry["first_batch"]), [str(run) for run in entry["runs"]]
    except (KeyError, TypeError, ValueError) as error:
        found = "is missing" if data is None else f"is damaged: {error!r}"
        raise CorruptDataError(
            f"{checkpoint.place(_RUNS)} {found}. Sinks use it to recognize micro-batches that they already have. "
            f'Restore it from a backup. If there is none, write {{"first_batch":0,"runs":[]}} into it; sinks that '
            f"already have the last micro-batch then refuse to continue."
        ) from error
