"""Savepoints of local jobs."""

from __future__ import annotations

from collections.abc import Iterator

from dsv2.folders import Folder
from dsv2.graph import Operator, Plan
from dsv2.local.run import LocalRun
from dsv2.program.description import describe
from dsv2.runtime.operator.subtask_restore import Succession
from dsv2.runtime.rescale import owner_of
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import Origin
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.writer import SavepointWriter

__all__ = ("restore", "take")


def take(plan: Plan, run: LocalRun, origin: Origin, folder: Folder) -> None:
    """Write the state of ``run`` between two micro-batches. Raises ``ConfigurationError`` if ``folder`` is in use."""
    writer = SavepointWriter(folder, describe(plan), run.codec)
    writer.write(run.rows())
    writer.finish(origin, run.positions(), sinks={})


def restore(plan: Plan, run: LocalRun, savepoint: SavepointReader, succession: Succession, codec: Codec) -> None:
    """Restore the subtasks of a new ``run``. Operators that the savepoint does not have are opened."""
    for head, chain in plan.chains.items():
        parallelism = plan.operators[head].parallelism
        restores = [run.subtask(head, index).begin_restore(succession) for index in range(parallelism)]
        for operator in chain:
            for subtask, row in _routed(operator, savepoint, codec):
                restores[subtask].add(operator.uid, [row])
        for restoring in restores:
            restoring.finish()


def _routed(operator: Operator, savepoint: SavepointReader, codec: Codec) -> Iterator[tuple[int, StateRow]]:
    """The rows of an operator, each with the index of a new subtask that needs it."""
    owner = f"Keyed state of {operator}, defined at {operator.location}"
    for row in savepoint.rows(operator.uid):
        if row.key is not None:
            yield owner_of(operator, codec.loads(row.key, owner)), row
        else:
            for subtask in range(operator.parallelism):
                yield subtask, row
