"""Savepoints of local jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from dsv2.base.folders import Folder
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.file_folders import folders_of
from dsv2.checkpoint.program import ProgramDescription
from dsv2.checkpoint.record import JobRecord, SinkRecord, SourcePosition, extended, sinks_of
from dsv2.checkpoint.task_report import TaskReport
from dsv2.graph import Plan
from dsv2.local.restoration import on_disk
from dsv2.local.run import LocalRun
from dsv2.runtime.sources.sent_watermarks import sent_before
from dsv2.runtime.state.row_routing import RowRouter
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import SavepointInfo
from dsv2.savepoint.writer import write_savepoint


def record_of(
    begun: JobRecord, run: LocalRun, report: TaskReport, batch_id: int, sinks: Mapping[str, SinkRecord]
) -> JobRecord:
    """Return the record of a job between two micro-batches.

    Args:
        begun: The record with which the run has begun.
        run: The run.
        report: The report of its subtasks after their last snapshots.
        batch_id: The last micro-batch.
        sinks: The sinks (``sinks_of``).
    """
    return replace(
        begun,
        batch_id=batch_id,
        sources=run.positions(),
        sinks=sinks,
        fields=report.fields_by_uid(),
        holding=sorted({one.uid for one in report.subtasks if one.records_held}),
        ended=run.ended_sources(),
    )


def take(plan: Plan, run: LocalRun, begun: JobRecord, batch_id: int, folder: Folder) -> None:
    """Write the state of ``run`` between two micro-batches.

    Args:
        plan: The plan.
        run: The run.
        begun: The record with which it has begun.
        batch_id: The last micro-batch.
        folder: Where to write it.

    Raises:
        ConfigurationError: ``folder`` is in use.
    """
    rows = list(run.tasks.rows())  # before the report, which has the fields of the last snapshots
    record = record_of(begun, run, run.tasks.report(), batch_id, sinks_of(plan, folders_of(plan, on_disk)))
    write_savepoint(folder, extended(SavepointInfo, record), rows, run.codec)


def restart(plan: Plan, run: LocalRun) -> None:
    """Restore ``run`` as from a savepoint of itself."""
    rows: dict[str, list[StateRow]] = {}
    for uid, row in run.tasks.rows():
        rows.setdefault(uid, []).append(row)
    run.tasks.replace_subtasks()
    restore(plan, run, describe(plan), lambda uid: rows.get(uid, []), {})


def restore(
    plan: Plan,
    run: LocalRun,
    program: ProgramDescription,
    rows: Callable[[str], Iterable[StateRow]],
    positions: Mapping[str, SourcePosition],
) -> None:
    """Restore the subtasks of a new run. Operators without rows are opened.

    Args:
        plan: The plan.
        run: The run.
        program: The program that wrote the rows.
        rows: Returns the rows of an operator.
        positions: The positions of the sources, by uid.

    Raises:
        IncompatibleCheckpointError: The state cannot be carried to this plan.
    """
    sent = sent_before(plan, positions)
    for head, chain in plan.chains.items():
        restore = run.tasks.chain_restore(head, program, sent)
        for operator in chain:
            router = RowRouter(operator, run.codec)
            for row in rows(operator.uid):
                for subtask in router.subtasks_of(row.subtask, row.kind, row.key):
                    restore.add(subtask, operator.uid, row)
        restore.finish()
    run.tasks.flush()
