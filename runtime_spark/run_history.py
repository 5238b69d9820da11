"""The runs of a checkpoint, as far as sinks have to know them."""

from __future__ import annotations

from dsv2.errors import CorruptDataError
from dsv2.sinks import SinkRunInfo
from runtime_spark.checked_json import from_json, to_json
from runtime_spark.checkpoint_log import Beginning
from runtime_spark.folders import Folder

__all__ = ("begin_run",)

_RUNS = "dsv2/runs.json"


def begin_run(checkpoint: Folder, run_id: str, beginning: Beginning) -> SinkRunInfo:
    """Write down that ``run_id`` begins, and say what it is to sinks. Raises ``CorruptDataError``.

    In the checkpoint stand the runs that may have written the micro-batch with which the last one began. A micro-batch
    whose offsets are logged was planned by the last run, or by one before that began with it.
    """
    earlier: list[str] = []
    if beginning.repeats:
        first_batch, runs = _read(checkpoint)
        earlier = runs if first_batch == beginning.batch_id else runs[-1:]
    entry = {"first_batch": beginning.batch_id, "runs": [*earlier, run_id]}
    checkpoint.write(_RUNS, to_json(entry))
    return SinkRunInfo(run_id, beginning.batch_id, tuple(earlier))


def _read(checkpoint: Folder) -> tuple[int, list[str]]:
    data = checkpoint.read(_RUNS)
    try:
        entry = from_json(data)
        return int(entry["first_batch"]), [str(run) for run in entry["runs"]]
    except (KeyError, TypeError, ValueError) as error:
        found = "is missing" if data is None else f"is damaged: {error!r}"
        raise CorruptDataError(
            f"{checkpoint.place(_RUNS)} {found}. By it sinks know which micro-batches they have got already. Put it "
            f'back from a backup. If there is none, write {{"first_batch":0,"runs":[]}} into it: sinks that have got '
            f"the last micro-batch already refuse to go on then."
        ) from error
