"""Decides before a start whether a savepoint is to be restored, and checks that it can be."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from msgspec import structs
from pyspark.sql import SparkSession

from dsv2.checkpoint.record import JobRecord
from dsv2.checkpoint.start import Stored, decide
from dsv2.errors import ConfigurationError
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions
from dsv2.runtime.operator.time_sender import SentBefore
from dsv2.runtime.sources.sent_watermarks import sent_before
from dsv2.savepoint.reader import SavepointReader
from runtime_spark.checkpoint.generations import SAVEPOINT
from runtime_spark.frames.failures import usable
from runtime_spark.platform.folders import open_folder
from runtime_spark.savepoint.tables import check_digests
from runtime_spark.start.migration import ChosenGeneration


@dataclass(frozen=True)
class Restoration:
    """The savepoint with which a generation began.

    Attributes:
        record: The job with which it began.
        savepoint: The savepoint itself, if the run has to restore it. None: an earlier run has done so.
    """

    record: JobRecord
    savepoint: SavepointReader | None

    def ended_subtasks(self, plan: Plan) -> dict[str, list[bool]]:
        """Return, for each source with a subtask that had ended, whether each of its subtasks has ended."""
        flags = {uid: [one.ended for one in readers] for uid, readers in self.sent(plan).items()}
        return {uid: of_readers for uid, of_readers in flags.items() if any(of_readers)}

    def sent(self, plan: Plan) -> dict[str, list[SentBefore]]:
        """Return what the readers of each source that the savepoint has, by uid, had sent."""
        assert self.savepoint is not None
        return sent_before(plan, self.savepoint.info.sources)


def restoration_of(
    spark: SparkSession, chosen: ChosenGeneration, plan: Plan, options: RunOptions, job_id: str
) -> Restoration | None:
    """Return what a start from a checkpoint restores; None if the generation did not begin with a savepoint.

    Args:
        spark: The session.
        chosen: The generation in which the job continues.
        plan: The program that starts.
        options: The options of the start.
        job_id: Identifies the job if the savepoint does not.

    Raises:
        ConfigurationError: The folder is not a savepoint, or the position of a source has to be confirmed.
        IncompatibleCheckpointError: The program cannot start from the savepoint.
        CorruptDataError: The savepoint is damaged.
    """
    generation, last = chosen.generation, chosen.generation.records.last
    if not chosen.starts_over and generation.batch_id >= 0:
        assert last is not None
        return None if last.savepoint_id is None else Restoration(last, None)
    began_with = None if last is None else last.savepoint
    if options.savepoint is not None:
        with usable(f"The path {options.savepoint} of the savepoint"):
            began_with = open_folder(spark, options.savepoint).path
    if not chosen.is_first:
        began_with, folder = chosen.current.stored.savepoint, generation.folder.subfolder(SAVEPOINT)
        options = dataclasses.replace(options, as_new_job=False)
    elif began_with is not None:
        with usable(f"The savepoint {began_with}"):
            folder = open_folder(spark, began_with)
    else:
        return None
    savepoint = SavepointReader(folder)
    check_digests(spark, folder, savepoint.info)
    if chosen.continues and generation.stored.savepoint_id not in (None, savepoint.info.savepoint_id):
        raise ConfigurationError(
            f"The checkpoint {generation.folder.path} began from another savepoint in the folder {folder.path}. Use a "
            f"new checkpoint_location."
        )
    stored = Stored(savepoint.info, folder.path, is_savepoint=True, replays=savepoint.replays())
    start = decide(stored, plan, options, job_id)
    start.check()
    start.warn_of_dropped(folder.path)
    return Restoration(structs.replace(start.record, savepoint=began_with), savepoint)
