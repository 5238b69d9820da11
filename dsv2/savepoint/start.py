"""Checks before a job runs whether it can start from a savepoint, on every runtime."""

from __future__ import annotations

from collections.abc import Collection

from dsv2.checkpoint.savepoint_check import check_savepoint
from dsv2.dead_letters.replay import check_replays
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError
from dsv2.graph import Plan
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.savepoint.metadata import SavepointInfo
from dsv2.savepoint.reader import SavepointReader
from dsv2.sinks import Sink


def check_start(plan: Plan, savepoint: SavepointReader, *, allow_dropped_state: bool) -> None:
    """Compare ``plan`` with the programs in a savepoint, and check the dead letters that it processes again.

    Raises:
        IncompatibleCheckpointError: The program cannot start from it.
        CorruptDataError: A file is damaged; names it.
    """
    info, types = savepoint.info, TypeRegistry.of(plan)
    check_savepoint(
        savepoint.folder.path,
        plan,
        info.programs,
        types,
        allow_dropped_state=allow_dropped_state,
        fields=info.fields,
        holding=info.holding,
        keys=info.keys,
    )
    check_replays(plan, savepoint.replays(), types, offsets=info.offsets)


def check_began_with(checkpoint: str, savepoint: str | None, asked: str) -> None:
    """Check that a checkpoint with state began with the savepoint that the start names.

    Args:
        checkpoint: The checkpoint.
        savepoint: The savepoint with which it began, or None.
        asked: The savepoint that the start names.

    Raises:
        ConfigurationError: It began otherwise.
    """
    if savepoint != asked:
        began = "without a savepoint" if savepoint is None else f"from the savepoint {savepoint}"
        raise ConfigurationError(
            f"The checkpoint {checkpoint} began {began}, so it cannot start from the savepoint {asked}. Use a new "
            f"checkpoint_location, or omit savepoint to continue from the checkpoint."
        )


def check_next_batch(path: str, plan: Plan, info: SavepointInfo) -> None:
    """Check that ``plan`` may continue the job of a savepoint.

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
    check_repeated_batch(
        plan,
        info.sinks,
        info.origin.batch_id + 1,
        f"which had begun when the savepoint {path} was taken. A start from the savepoint may give it other records "
        f"with the same batch id. Start the job once from its checkpoint, which completes the micro-batch, and take "
        f"the savepoint with stop_with_savepoint. If that is impossible, start with as_new_job=True and other outputs.",
    )


def check_repeated_batch(plan: Plan, sinks: Collection[str], batch_id: int, remedy: str) -> None:
    """Check that the sinks of ``plan`` may get other records of a micro-batch that an earlier run has begun.

    ``FileSink``, ``KafkaSink`` and ``PostgresSink`` notice themselves what they have written of it.

    Args:
        plan: The program that starts.
        sinks: The uids of the sinks of the earlier run.
        batch_id: The micro-batch, as sinks know it.
        remedy: Why they would get other records, and what to do. Ends the error.

    Raises:
        IncompatibleCheckpointError: A sink relies on getting the same records.
    """
    for operator in plan.operators:
        sink = operator.body
        if isinstance(sink, Sink) and not sink.accepts_other_records and operator.uid in sinks:
            raise IncompatibleCheckpointError(
                f"The sink {operator}, defined at {operator.location}, may have written a part of micro-batch "
                f"{batch_id}, {remedy}"
            )
