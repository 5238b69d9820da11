"""Decides before a start whether a savepoint is to be restored, and checks that it can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dsv2.checkpoint.description import describe
from dsv2.errors import ConfigurationError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.jobs.handle import RunOptions
from dsv2.runtime.operator.time_sender import SentBefore
from dsv2.runtime.sources.continuation import check_kind
from dsv2.runtime.sources.sent_watermarks import sent_before
from dsv2.savepoint.metadata import SourcePosition
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.start import check_began_with, check_next_batch, check_start
from dsv2.sources import DataFrameSource
from runtime_spark.checkpoint.generations import SAVEPOINT
from runtime_spark.checkpoint.notes import Notes
from runtime_spark.checkpoint.origin import NO_ORIGIN, CheckpointOrigin
from runtime_spark.checkpoint.record import JobRecord
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
    spark: SparkSession, record: JobRecord, plan: Plan, options: RunOptions, *, begun: bool, committed: bool
) -> Restoration | None:
    """Return what a start from a checkpoint restores; None if it did not begin with a savepoint.

    Args:
        spark: The session.
        record: The generation of the checkpoint.
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
    checkpoint, origin, ancestry = record.folder, record.origin, record.ancestry
    began_with = origin.path if ancestry is None else ancestry.savepoint
    if options.savepoint is not None:
        with usable(f"The path {options.savepoint} of the savepoint"):
            path = open_folder(spark, options.savepoint).path
        if begun or ancestry is not None:
            check_began_with(checkpoint.path, began_with, path)
        began_with = path
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
    info, as_new_job = savepoint.info, options.as_new_job and ancestry is None
    check_start(plan, savepoint, allow_dropped_state=options.allow_dropped_state)
    check_positions(plan, info.sources, options.continued_sources)
    if ancestry is None and not as_new_job:  # otherwise the checkpoint was checked
        check_next_batch(folder.path, plan, info)
    return Restoration(CheckpointOrigin.of(began_with, info, describe(plan), as_new_job=as_new_job), savepoint)


def check_positions(plan: Plan, positions: Mapping[str, SourcePosition], continued: Collection[str]) -> None:
    """Check that the sources can continue at their positions.

    Args:
        plan: The program that starts.
        positions: The positions, by uid.
        continued: The streaming DataFrames whose positions the user has confirmed.

    Raises:
        ConfigurationError: A source cannot, or the user has to confirm it.
    """
    for operator in plan.operators:
        if operator.kind is OperatorKind.SOURCE and operator.uid in positions:
            _check_position(operator, positions[operator.uid].offset, continued)


def _check_position(operator: Operator, offset: dict[str, Any], continued: Collection[str]) -> None:
    check_kind(operator, offset)
    source, where = operator.body, f"The source {operator}, defined at {operator.location},"
    if isinstance(source, DataFrameSource) and "streams" in offset:
        assert isinstance(source.dataframe, DataFrame)
        if operator.uid not in continued:
            raise ConfigurationError(
                f"{where} is a streaming DataFrame, whose position only its own options can set. The savepoint was "
                f"taken at {offset['streams']}. Set the options so that it starts there, and confirm this with "
                f"continued_sources=[{operator.uid!r}]."
            )
