"""Decides before a start whether a savepoint is to be restored, and checks that it can be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from dsv2.checkpoint.start import Stored, decide
from dsv2.errors import ConfigurationError
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions
from dsv2.runtime.operator.time_sender import SentBefore
from dsv2.runtime.sources.sent_watermarks import sent_before
from dsv2.savepoint.reader import SavepointReader
from runtime_spark.checkpoint.generations import SAVEPOINT
from runtime_spark.checkpoint.notes import Notes
from runtime_spark.checkpoint.origin import NO_ORIGIN, CheckpointOrigin
from runtime_spark.checkpoint.record import Generation
from runtime_spark.frames.failures import usable
from runtime_spark.platform.folders import open_folder
from runtime_spark.savepoint.tables import check_digests


@dataclass(frozen=True)
class Restoration:
    """The savepoint with which a checkpoint began.

    Attributes:
        origin: What the checkpoint records of it.
        savepoint: The savepoint itself, if the run has to restore it. None: an earlier run has done so.
    """

    origin: CheckpointOrigin
    savepoint: SavepointReader | None

    def notes(self, plan: Plan) -> Notes:
        """Return the notes that the savepoint holds, for a new checkpoint."""
        assert self.savepoint is not None
        flags = {uid: [one.ended for one in readers] for uid, readers in self.sent(plan).items()}
        ended = {uid: of_readers for uid, of_readers in flags.items() if any(of_readers)}
        return Notes(keys=list(self.savepoint.info.keys), ended=ended)  # subtasks report the fields that they restore

    def sent(self, plan: Plan) -> dict[str, list[SentBefore]]:
        """Return what the readers of each source that the savepoint has, by uid, had sent."""
        assert self.savepoint is not None
        return sent_before(plan, self.savepoint.info.sources)


def restoration_of(
    spark: SparkSession, generation: Generation, plan: Plan, options: RunOptions, *, begun: bool, committed: bool
) -> Restoration | None:
    """Return what a start from a checkpoint restores; None if it did not begin with a savepoint.

    Args:
        spark: The session.
        generation: The generation of the checkpoint.
        plan: The program that starts.
        options: The options of the start.
        begun: Whether a micro-batch has begun in the checkpoint.
        committed: Whether a micro-batch is complete.

    Raises:
        ConfigurationError: The checkpoint did not begin with ``options.savepoint``, that folder is not a savepoint, or
            the position of a source has to be confirmed.
        IncompatibleCheckpointError: The program cannot start from the savepoint.
        CorruptDataError: The savepoint is damaged.
    """
    checkpoint, origin, ancestry = generation.folder, generation.origin, generation.ancestry
    began_with = origin.path if ancestry is None else ancestry.savepoint
    if options.savepoint is not None:
        with usable(f"The path {options.savepoint} of the savepoint"):
            began_with = open_folder(spark, options.savepoint).path
    if committed:
        return None if origin == NO_ORIGIN else Restoration(origin, None)
    if ancestry is not None:
        folder = checkpoint.subfolder(SAVEPOINT)
    elif began_with is not None:
        with usable(f"The savepoint {began_with}"):
            folder = open_folder(spark, began_with)
    else:
        return None
    savepoint = SavepointReader(folder)
    check_digests(spark, folder, savepoint.info)
    if begun and origin.savepoint_id not in (NO_ORIGIN.savepoint_id, savepoint.info.savepoint_id):
        raise ConfigurationError(
            f"The checkpoint {checkpoint.path} began from another savepoint in the folder {folder.path}. Use a new "
            f"checkpoint_location."
        )
    if ancestry is not None:
        options = replace(options, as_new_job=False)
    stored = Stored(savepoint.info, folder.path, is_savepoint=True, replays=savepoint.replays())
    start = decide(stored, plan, options, generation.job_id if begun else "")
    start.check()
    start.warn_of_dropped(folder.path)
    origin = CheckpointOrigin.of(began_with, savepoint.info, start.record, as_new_job=options.as_new_job)
    return Restoration(origin, savepoint)
