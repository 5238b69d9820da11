"""Decides in which generation of its checkpoint a job continues, and begins a new one if the program has changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from pyspark.sql import SparkSession

from dsv2.base.folders import Folder
from dsv2.base.quantities import counted
from dsv2.checkpoint.start import Action, Start, decide
from dsv2.dead_letters.replay import PendingReplay
from dsv2.errors import ConfigurationError
from dsv2.file_log.ownership import OutputOwner
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions
from runtime_spark.checkpoint.dead_letters import is_withdrawn, pending_in
from runtime_spark.checkpoint.file_outputs import check_outputs
from runtime_spark.checkpoint.generation import Generation
from runtime_spark.checkpoint.generations import SAVEPOINT, Generations, delete_generation
from runtime_spark.checkpoint.lease import Lease
from runtime_spark.checkpoint.spark_logs import listed_beginning
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.state_key import StateKey
from runtime_spark.platform.driver_processes import describe_driver
from runtime_spark.platform.folders import driver_processes, open_folder
from runtime_spark.savepoint.create import take_savepoint

_LOG = logging.getLogger("dsv2.spark.migration")


@dataclass(frozen=True)
class ChosenGeneration:
    """The generation in which a start continues.

    Attributes:
        root: The checkpoint.
        current: Its current generation when the start chose.
        generation: The generation in which the start continues: the current one or the next.
        start: The decision about that generation; None: it has not begun.
        discarded_folders: The file sinks of a generation that has begun and is discarded: uids and folders.
    """

    root: Folder
    current: Generation
    generation: Generation
    start: Start | None
    discarded_folders: Sequence[tuple[str, str]] = ()

    @property
    def starts_over(self) -> bool:
        """True if the first micro-batch of the checkpoint has begun, and is discarded: the program has changed."""
        return self.start is not None and self.start.action is Action.NEW

    @property
    def continues(self) -> bool:
        """True if a micro-batch has begun in the generation, and the run continues it or those after it."""
        return self.start is not None and not self.starts_over

    @property
    def path_below_root(self) -> str:
        """The path below that of the checkpoint, such as ``/generations/1``."""
        return self.generation.folder.path.removeprefix(self.root.path)

    @property
    def is_first(self) -> bool:
        """True if the start continues in the first generation."""
        return self.generation.folder.path == self.root.path

    @property
    def is_current(self) -> bool:
        """True if the start continues in the current generation."""
        return self.generation.folder.path == self.current.folder.path


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
    generations = Generations(root)
    current, later = Generation(generations.current), generations.begun
    if not current.has_begun:
        return ChosenGeneration(root, current, current, None)
    asked = None if options.savepoint is None else open_folder(spark, options.savepoint).path
    begun = None if later is None else Generation(later)
    if begun is not None and not is_withdrawn(spark, root, current, begun, plan, options):
        start = decide(replace(begun.found_by(plan, layout), asked=asked), plan, options, current.stored.job_id)
        if not start.changes:
            return ChosenGeneration(root, current, begun, start)
    replay = pending_in(spark, root, current, plan, options)
    stored = replace(
        current.found_by(plan, layout),
        pending=replay,
        discarded=None if begun is None else begun.record,
        asked=asked,
        key=None if state_key is None else state_key.value,
    )
    start = decide(stored, plan, options, current.stored.job_id)
    discarded = () if begun is None else begun.record.file_folders()
    if replay is not None and start.action is Action.CONTINUE:
        _LOG.warning("%s: a micro-batch is not complete, so dead letters wait for the next start.", root.path)
    if start.action is not Action.MIGRATE:
        return ChosenGeneration(root, current, current, start, discarded)
    current.check_savepoint()
    owner = OutputOwner(current.stored.job_id, current.stored.owner)
    check_outputs(spark, plan, owner, current.next_batch, takes_over=True)
    _log(root, start)
    _migrate(spark, root, current, state_key, start.replay)
    return ChosenGeneration(root, current, Generation(generations.next), None, discarded)


@contextmanager
def lease_on(spark: SparkSession, root: Folder) -> Iterator[None]:
    """Hold the lease on a checkpoint meanwhile."""
    lease = Lease(root, str(uuid4()), describe_driver(driver_processes(spark)))
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


def _log(root: Folder, start: Start) -> None:
    if start.changes:
        changes = "; ".join(map(str, start.changes))
        _LOG.warning("The program has changed: %s. Migrating the checkpoint %s.", changes, root.path)
    if start.replay is not None:
        letters = counted(len(start.replay.letters), "dead letter")
        _LOG.warning("Processing %s again. Migrating the checkpoint %s.", letters, root.path)


def _migrate(
    spark: SparkSession, root: Folder, current: Generation, state_key: StateKey | None, replay: PendingReplay | None
) -> None:
    """Begin the next generation with a savepoint of ``current``. Discards an earlier attempt."""
    folder = current.folder
    with lease_on(spark, root):
        generations = Generations(root)
        if generations.current.path != folder.path or listed_beginning(folder) != current.beginning:
            raise another_driver(root)
        after = generations.next
        delete_generation(root, after)
        take_savepoint(spark, folder, after.subfolder(SAVEPOINT), state_key, replay)
