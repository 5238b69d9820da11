"""Decides before a start whether a savepoint is to be restored, and checks that it can be."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.folders import Folder
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.job import RunOptions
from dsv2.program.description import describe
from dsv2.program.key_samples import changed_keys, readable_samples
from dsv2.program.savepoint_check import check_savepoint
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.savepoint.metadata import SavepointInfo, SourcePosition
from dsv2.savepoint.reader import SavepointReader
from dsv2.sources import DataFrameSource, IndexedSource
from runtime_spark.failures import usable
from runtime_spark.folders import open_folder
from runtime_spark.notes import Notes
from runtime_spark.savepoint.origin import CheckpointOrigin
from runtime_spark.savepoint.tables import file_digests

__all__ = ("OpenSavepoint", "Restoration", "has_ended", "restoration_of")


@dataclass(frozen=True)
class OpenSavepoint:
    """A savepoint whose files are complete."""

    folder: Folder
    info: SavepointInfo


@dataclass(frozen=True)
class Restoration:
    """The savepoint with which a checkpoint began.

    Attributes:
        origin: What the checkpoint records of it.
        savepoint: The savepoint itself, if the run has to restore it. None: an earlier run has done so.
    """

    origin: CheckpointOrigin
    savepoint: OpenSavepoint | None

    def notes(self, plan: Plan) -> Notes:
        """Return the notes that the savepoint holds, for a new checkpoint."""
        assert self.savepoint is not None
        info = self.savepoint.info
        parallelisms = {op.uid: op.parallelism for op in plan.operators if op.kind is OperatorKind.SOURCE}
        ended = {
            uid: [True] * parallelisms[uid]
            for uid, position in info.sources.items()
            if uid in parallelisms and has_ended(position)
        }
        return Notes(keys=list(info.keys), ended=ended)  # subtasks report the fields that they restore


def restoration_of(
    spark: SparkSession, checkpoint: Folder, plan: Plan, options: RunOptions, *, begun: bool, committed: bool
) -> Restoration | None:
    """Return what a start from ``checkpoint`` restores; None if it did not begin with a savepoint.

    Args:
        spark: The session.
        checkpoint: The checkpoint.
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
    origin = CheckpointOrigin.read(checkpoint)
    if options.savepoint is not None:
        with usable(f"The path {options.savepoint} of the savepoint"):
            path = open_folder(spark, options.savepoint).path
        if begun and (origin is None or origin.path != path):
            began = "without a savepoint" if origin is None else f"from the savepoint {origin.path}"
            raise ConfigurationError(
                f"The checkpoint {checkpoint.path} began {began}, so it cannot start from the savepoint {path}. Use a "
                f"new checkpoint_location, or omit savepoint to continue from the checkpoint."
            )
    elif origin is not None:
        path = origin.path
    else:
        return None
    if committed:
        assert origin is not None
        return Restoration(origin, None)
    with usable(f"The savepoint {path}"):
        savepoint = _open(spark, path)
    if begun and origin is not None and origin.savepoint_id != savepoint.info.savepoint_id:
        raise ConfigurationError(
            f"The checkpoint {checkpoint.path} began from another savepoint in the folder {path}. Use a new "
            f"checkpoint_location."
        )
    _check(plan, savepoint, options)
    return Restoration(
        CheckpointOrigin.of(path, savepoint.info, describe(plan), as_new_job=options.as_new_job), savepoint
    )


def has_ended(position: SourcePosition) -> bool:
    """Whether a source has read its input to the end."""
    readers = position.offset.get("readers", ())
    of_splits = bool(readers) and all(reader["ended"] is not None for reader in readers)
    return of_splits or bool(position.offset.get("ended"))


def _open(spark: SparkSession, path: str) -> OpenSavepoint:
    """Open a savepoint and compare the digests of its files."""
    folder = open_folder(spark, path)
    info = SavepointReader(folder).info
    found = file_digests(spark, folder, info.tables)
    for name, file in info.files.items():
        if found.get(name) != file:
            raise CorruptDataError(
                f"{folder.place(name)} was changed since the savepoint was taken. Restore the savepoint from a backup."
            )
    return OpenSavepoint(folder, info)


def _check(plan: Plan, savepoint: OpenSavepoint, options: RunOptions) -> None:
    info, types = savepoint.info, TypeRegistry.of(plan)
    check_savepoint(
        savepoint.folder.path,
        plan,
        info.programs,
        types,
        allow_dropped_state=options.allow_dropped_state,
        fields=info.fields,
        changed_keys=changed_keys(plan, readable_samples(plan, list(info.keys), Codec(types))),
    )
    for operator in plan.operators:
        if operator.kind is OperatorKind.SOURCE and operator.uid in info.sources:
            _check_position(operator, info.sources[operator.uid].offset, options.continued_sources)


def _check_position(operator: Operator, offset: dict[str, Any], continued: Collection[str]) -> None:
    source, where = operator.body, f"The source {operator}, defined at {operator.location},"
    if isinstance(source, DataFrameSource) and "streams" in offset:
        assert isinstance(source.dataframe, DataFrame)
        if operator.uid not in continued:
            raise ConfigurationError(
                f"{where} is a streaming DataFrame, whose position only its own options can set. The savepoint was "
                f"taken at {offset['streams']}. Set the options so that it starts there, and confirm this with "
                f"continued_sources=[{operator.uid!r}]."
            )
        return
    needed = "position" if isinstance(source, IndexedSource | DataFrameSource) else "batch"
    if needed not in offset:
        raise ConfigurationError(
            f"{where} is of another kind than the source whose position the savepoint holds. Give it another uid to "
            f"read from its beginning."
        )
