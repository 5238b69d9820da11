"""Decides in which generation of its checkpoint a job continues, and begins a new one if the program has changed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from pyspark.sql import SparkSession

from dsv2.base.folders import Folder
from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.savepoint_check import carried_differences
from dsv2.dead_letters.replay import PendingReplay
from dsv2.errors import ConfigurationError
from dsv2.file_log.ownership import OutputOwner
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions
from runtime_spark.checkpoint.dead_letters import check_pending, is_withdrawn, pending_in
from runtime_spark.checkpoint.file_outputs import check_outputs
from runtime_spark.checkpoint.generations import (
    SAVEPOINT,
    begun_generation,
    current_generation,
    delete_generation,
    next_generation,
)
from runtime_spark.checkpoint.lease import Lease
from runtime_spark.checkpoint.record import JobRecord
from runtime_spark.checkpoint.spark_logs import beginning_of
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.state_key import StateKey
from runtime_spark.platform.driver_processes import describe_driver
from runtime_spark.platform.folders import jvm_process
from runtime_spark.savepoint.create import take_savepoint
from runtime_spark.start.restoration import check_positions

_LOG = logging.getLogger("dsv2.spark.migration")


@dataclass(frozen=True)
class ChosenGeneration:
    """The generation in which a start continues.

    Attributes:
        root: The checkpoint.
        current: Its current generation when the start chose.
        record: The generation in which the start continues: the current one or the next.
        starts_over: Whether the micro-batch that has begun is discarded, because it is the first one of the checkpoint
            and the program has changed.
        discarded_folders: The file sinks of a generation that has begun and is discarded: uids and folders.
        differences: Why the program cannot continue there.
    """

    root: Folder
    current: JobRecord
    record: JobRecord
    starts_over: bool = False
    discarded_folders: Sequence[tuple[str, str]] = ()
    differences: Sequence[Difference] = ()

    @property
    def path_below_root(self) -> str:
        """The path below that of the checkpoint, such as ``/generations/1``."""
        return self.record.folder.path.removeprefix(self.root.path)

    @property
    def is_first(self) -> bool:
        """True if the start continues in the first generation."""
        return self.record.folder.path == self.root.path

    @property
    def is_current(self) -> bool:
        """True if the start continues in the current generation."""
        return self.record.folder.path == self.current.folder.path


def choose_generation(
    spark: SparkSession, root: Folder, plan: Plan, layout: Layout, options: RunOptions, state_key: StateKey | None
) -> ChosenGeneration:
    """Choose the generation in which a start continues.

    A generation that this program has begun is continued. Otherwise the start continues in the current generation. If
    the program has changed in a way that only a savepoint carries, or dead letters are to be processed again, it begins
    the next one, with a savepoint of the current generation.

    Args:
        spark: The session.
        root: The checkpoint.
        plan: The program that starts.
        layout: Its layout.
        options: The options of the start.
        state_key: The key of the job, if its state is signed.

    Raises:
        IncompatibleCheckpointError: A savepoint does not carry a change, state would be dropped, dead letters cannot be
            processed again, or a sink may have written a part of a micro-batch that is not complete.
        ConfigurationError: Another driver uses the checkpoint, or the position of a source has to be confirmed.
        CorruptDataError: A file of the checkpoint is damaged.
        JobError: The savepoint cannot be taken.
    """
    current, later = JobRecord(current_generation(root)), begun_generation(root)
    begun = None if later is None else JobRecord(later)
    if begun is not None and _continues(spark, root, current, begun, plan, layout, options):
        return ChosenGeneration(root, current, begun)
    discarded = () if begun is None else begun.notes.file_folders()
    chosen = partial(ChosenGeneration, root, current, discarded_folders=discarded)
    found = current.differences(plan, layout)
    if found and (options.on_change == "refuse" or current.has_spark_state):
        return chosen(current, differences=found)  # where it will be refused
    if begun is not None:
        begun.check_incomplete_batch(plan)
    replay = pending_in(spark, root, current, plan, options)
    if replay is not None and not found and current.has_begun_next:
        # Otherwise its sinks would get other records with the same batch id.
        _LOG.warning("%s: a micro-batch is not complete, so dead letters wait for the next start.", root.path)
        replay = None
    if not found and replay is None:
        return chosen(current)
    current.check_incomplete_batch(plan)
    if not current.folder.numbers("commits"):
        return chosen(current, starts_over=bool(found))
    _check(spark, current, plan, found, options)
    if replay is not None:
        check_pending(current, plan, replay, state_key)
    _log(root, found, replay)
    _migrate(spark, root, current, state_key, replay)
    return chosen(JobRecord(next_generation(root)))


@contextmanager
def lease_on(spark: SparkSession, root: Folder) -> Iterator[None]:
    """Hold the lease on a checkpoint meanwhile."""
    lease = Lease(root, str(uuid4()), describe_driver([os.getpid(), jvm_process(spark)]))
    lease.acquire()
    lease.keep(lambda: False)
    try:
        yield
    finally:
        lease.release()


def another_driver(root: Folder) -> ConfigurationError:
    """Return the error for a checkpoint that has changed during the start."""
    return ConfigurationError(
        f"Another driver continued from the checkpoint {root.path} while this job was starting. Start the job again."
    )


def _continues(
    spark: SparkSession,
    root: Folder,
    current: JobRecord,
    begun: JobRecord,
    plan: Plan,
    layout: Layout,
    options: RunOptions,
) -> bool:
    """Return whether the program continues the generation ``begun``: it began it, and no replay was withdrawn."""
    return not begun.differences(plan, layout) and not is_withdrawn(spark, root, current, begun, plan, options)


def _check(
    spark: SparkSession, current: JobRecord, plan: Plan, found: Sequence[Difference], options: RunOptions
) -> None:
    """Check that the program can start from a savepoint of ``current``, before one is taken."""
    current.check_savepoint()
    carried_differences(
        "checkpoint",
        current.folder.path,
        plan,
        current.programs,
        found,
        allow_dropped_state=options.allow_dropped_state,
        fields=current.notes.fields,
    )
    check_positions(plan, current.sources, options.continued_sources)
    owner = OutputOwner(current.job_id, current.inherited.checkpoint_id)
    check_outputs(spark, plan, owner, current.next_batch, takes_over=True)


def _log(root: Folder, found: Sequence[Difference], replay: PendingReplay | None) -> None:
    if found:
        changes = "; ".join(map(str, found))
        _LOG.warning("The program has changed: %s. Migrating the checkpoint %s.", changes, root.path)
    if replay is not None:
        count = len(replay.letters)
        _LOG.warning("%d dead letters are processed again. Migrating the checkpoint %s.", count, root.path)


def _migrate(
    spark: SparkSession, root: Folder, current: JobRecord, state_key: StateKey | None, replay: PendingReplay | None
) -> None:
    """Begin the next generation with a savepoint of ``current``. Discards an earlier attempt."""
    folder = current.folder
    with lease_on(spark, root):
        if current_generation(root).path != folder.path or beginning_of(folder) != current.beginning:
            raise another_driver(root)
        after = next_generation(root)
        delete_generation(root, after)
        current.inherited.write(after)
        take_savepoint(spark, folder, after.subfolder(SAVEPOINT), state_key, replay)
