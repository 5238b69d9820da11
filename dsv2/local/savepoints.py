"""Savepoints of local jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from dsv2.base.folders import Folder
from dsv2.checkpoint.description import Description, describe, describe_sinks
from dsv2.checkpoint.file_folders import folders_of
from dsv2.checkpoint.history import continued_programs
from dsv2.dead_letters.replay import Replays
from dsv2.graph import Plan
from dsv2.local.restoration import on_disk
from dsv2.local.run import LocalRun
from dsv2.runtime.rescale import ProgramSuccession
from dsv2.runtime.sources.sent_watermarks import sent_before
from dsv2.runtime.state.row_routing import RowRouter
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import Origin, SavepointInfo, SourcePosition, sink_positions
from dsv2.savepoint.writer import write_savepoint


def take(
    plan: Plan, run: LocalRun, earlier: Iterable[Description], replays: Replays, origin: Origin, folder: Folder
) -> None:
    """Write the state of ``run`` between two micro-batches.

    Args:
        plan: The plan.
        run: The run.
        earlier: The programs in the savepoint from which the run has started, if it has.
        replays: The dead letters that the job has processed again.
        origin: Where the savepoint comes from.
        folder: Where to write it.

    Raises:
        ConfigurationError: ``folder`` is in use.
    """
    rows = list(run.rows())  # before the fields, which are those of the last snapshot
    programs, sinks = continued_programs(earlier, describe(plan)), describe_sinks(plan, folders_of(plan, on_disk))
    info = SavepointInfo("", origin, programs, [], run.positions(), sink_positions(sinks, origin), {})
    info = replace(info, fields=run.kept_fields(), holding=run.holding(), replays=replays)
    write_savepoint(folder, info, rows, run.codec)


def restart(plan: Plan, run: LocalRun) -> None:
    """Restore ``run`` as from a savepoint of itself."""
    rows: dict[str, list[StateRow]] = {}
    for uid, row in run.rows():
        rows.setdefault(uid, []).append(row)
    run.replace_subtasks()
    restore(plan, run, describe(plan), lambda uid: rows.get(uid, []), {})


def restore(
    plan: Plan,
    run: LocalRun,
    program: Description,
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
    succession = ProgramSuccession(plan, program, run.codec, sent_before(plan, positions))
    for head, chain in plan.chains.items():
        restores = [
            run.subtask(head, index).begin_restore(succession) for index in range(plan.operators[head].parallelism)
        ]
        for operator in chain:
            router = RowRouter(operator, run.codec)
            for row in rows(operator.uid):
                for subtask in router.subtasks_of(row.subtask, row.kind, row.key):
                    restores[subtask].add(operator.uid, [row])
        for restoring in restores:
            restoring.finish()
    run.flush()
