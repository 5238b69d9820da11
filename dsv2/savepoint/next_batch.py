"""Checks whether sinks can get the micro-batch after a savepoint, which the job may already have begun without it."""

from __future__ import annotations

from dsv2.errors import IncompatibleCheckpointError
from dsv2.graph import Plan
from dsv2.savepoint.metadata import SavepointInfo
from dsv2.sinks import Sink

__all__ = ("check_next_batch",)


def check_next_batch(path: str, plan: Plan, info: SavepointInfo) -> None:
    """Check that ``plan`` may continue the job of a savepoint, as ``check_incomplete_batch`` does for a checkpoint.

    Args:
        path: The savepoint, for errors.
        plan: The program that starts.
        info: The description of the savepoint.

    Raises:
        IncompatibleCheckpointError: A sink may have written a part of the next micro-batch, and relies on getting the
            same records.
    """
    if not info.has_begun_next:
        return
    for operator in plan.operators:
        sink = operator.body
        if isinstance(sink, Sink) and not sink.accepts_other_records and operator.uid in info.sinks:
            raise IncompatibleCheckpointError(
                f"The sink {operator}, defined at {operator.location}, may have written a part of micro-batch "
                f"{info.origin.batch_id + 1}, which had begun when the savepoint {path} was taken. A start from the "
                f"savepoint may give it other records with the same batch id. Start the job once from its checkpoint, "
                f"which completes the micro-batch, and take the savepoint with stop_with_savepoint. If that is "
                f"impossible, start with as_new_job=True and other outputs."
            )
