"""Records the runs of a checkpoint that sinks must recognize."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.base.folders import Folder
from dsv2.checks.json_documents import read_existing, write_document
from dsv2.sinks import SinkRunInfo

_RUNS = "dsv2/runs.json"
_REMEDY = (
    "Sinks use it to recognize micro-batches that they already have. Restore it from a backup. If there is none, write "
    '{"first_batch":0,"runs":[]} into it; sinks that already have the last micro-batch then refuse to continue.'
)


@dataclass(frozen=True)
class _Runs:
    """The runs that may have written ``first_batch``, with which the last of them began."""

    first_batch: int
    runs: list[str]


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
        last = read_existing(checkpoint, _RUNS, _Runs, _REMEDY)
        earlier = last.runs if last.first_batch == batch_id else last.runs[-1:]
    write_document(checkpoint, _RUNS, _Runs(batch_id, [*earlier, run_id]))
    return SinkRunInfo(run_id, first_batch + batch_id, tuple(earlier))
