"""Checks whether the sinks of a changed program can get a micro-batch that an earlier program has not completed."""

from __future__ import annotations

from dsv2.errors import IncompatibleCheckpointError
from dsv2.folders import Folder
from dsv2.graph import Plan
from dsv2.sinks import Sink
from runtime_spark.checkpoint_log import beginning_of
from runtime_spark.notes import notes_of
from runtime_spark.savepoint.origin import CheckpointOrigin

__all__ = ("begun_batch", "check_incomplete_batch")


def begun_batch(generation: Folder) -> int | None:
    """Return the incomplete micro-batch that sinks may have written in part, by Spark's number. None: there is none."""
    beginning = beginning_of(generation)
    if not beginning.repeats:
        return None
    return beginning.batch_id if notes_of(generation).is_begun(beginning) else None


def check_incomplete_batch(generation: Folder, plan: Plan) -> None:
    """Check that ``plan`` may repeat the micro-batch that another program has begun in ``generation``, if there is one.

    With a changed program it has the same id, and other records. ``FileSink``, ``KafkaSink`` and ``PostgresSink``
    notice themselves what they have written of it.

    Raises:
        IncompatibleCheckpointError: A sink may have written a part of it, and relies on getting the same records.
    """
    begun = begun_batch(generation)
    if begun is None:
        return
    sinks, origin = notes_of(generation).sinks, CheckpointOrigin.read(generation)
    batch_id = begun + (0 if origin is None else origin.first_batch)
    if batch_id == 0:
        otherwise = "start with a new checkpoint_location: no micro-batch is complete"
    else:
        otherwise = "start from a savepoint with as_new_job=True and other outputs"
    for operator in plan.operators:
        sink = operator.body
        if isinstance(sink, Sink) and not sink.accepts_other_records and operator.uid in sinks:
            raise IncompatibleCheckpointError(
                f"The sink {operator}, defined at {operator.location}, may have written a part of micro-batch "
                f"{batch_id}, which is not complete. The program has changed, so it would get other records with the "
                f"same batch id. Start the program that began this micro-batch once, without the changes: it completes "
                f"the micro-batch. Then start the changed program. If that is impossible, {otherwise}."
            )
