"""Writes an edited savepoint with Spark: its state is read, changed and written in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from uuid import uuid4

import pyarrow as pa
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.storagelevel import StorageLevel

from dsv2.base.folders import Folder, literal_path
from dsv2.errors import ConfigurationError
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.edit_writer import Draft, Given, check_new_folder, remove_unfinished
from dsv2.savepoint.metadata import write_info
from dsv2.savepoint.row_edits import Edit, edit_rows
from dsv2.savepoint.table_state import GivenState, columns_of, is_on_spark, local_values
from dsv2.savepoint.tables import COLUMNS, SavepointTable
from runtime_spark.frames.failures import job_failure, marked_failures, usable
from runtime_spark.platform.connect import check_classic
from runtime_spark.platform.executors import use_this_python
from runtime_spark.platform.folders import open_folder
from runtime_spark.platform.versions import check_spark
from runtime_spark.savepoint.state_rows import ROWS_SCHEMA, local_rows, to_row_batches
from runtime_spark.savepoint.tables import check_digests, file_digests, write_tables

_STATE_SCHEMA = "subtask int, kind string, state string, key_bytes binary, value_bytes binary"


def write_on_spark(spark: SparkSession, path: str, draft: Draft) -> str:
    """Write a savepoint and return its path. See ``SavepointEditor.write``."""
    check_classic(spark, "SavepointEditor.write")
    check_spark(spark)
    use_this_python(spark)
    with usable(f"The path {path} of the savepoint"):
        folder = open_folder(spark, path)
        check_new_folder(folder, draft)
    try:
        _write(spark, folder, draft)
    except BaseException as error:
        remove_unfinished(folder)
        if isinstance(error, Exception):
            raise job_failure(error, draft.info.origin.job_name) from error
        raise
    return folder.path


def _write(spark: SparkSession, folder: Folder, draft: Draft) -> None:
    tables: list[SavepointTable] = []
    with ExitStack() as stack:
        parts = [*_given_rows(spark, draft, stack), *_original_rows(spark, draft)]
        if parts:
            rows = reduce(DataFrame.unionAll, parts).persist(StorageLevel.MEMORY_AND_DISK)  # functions are called once
            stack.callback(rows.unpersist)
            tables = write_tables(rows, folder, draft.info.program)
    files = file_digests(spark, folder, tables)
    info = structs.replace(draft.info, savepoint_id=str(uuid4()), tables=tables, files=files, spark=spark.version)
    write_info(folder, info)


def _original_rows(spark: SparkSession, draft: Draft) -> Iterator[DataFrame]:
    """The edited rows of the original."""
    if draft.original is None:
        return
    folder, info = draft.original.folder, draft.original.info
    check_digests(spark, folder, info)
    by_uid: dict[str, list[str]] = {}
    for table in info.tables:
        by_uid.setdefault(table.id.uid, []).append(literal_path(folder.uri(table.folder)))
    for uid, paths in sorted(by_uid.items()):
        rows = spark.read.schema(_STATE_SCHEMA).parquet(*paths).select(F.lit(uid).alias("uid"), *COLUMNS)
        yield _edited(rows, draft.edits)


def _given_rows(spark: SparkSession, draft: Draft, stack: ExitStack) -> Iterator[DataFrame]:
    """The rows of given states and of dead letters, after the edits that followed."""
    for given in draft.given:
        yield _edited(_rows_of(spark, given, stack), draft.edits[given.after :])
    for replay in draft.replays:
        yield _edited(local_rows(spark, replay.rows), draft.edits[replay.after :])


def _edited(rows: DataFrame, edits: tuple[Edit, ...]) -> DataFrame:
    return rows.mapInArrow(_RowEditor(edits), ROWS_SCHEMA) if edits else rows


def _rows_of(spark: SparkSession, given: Given, stack: ExitStack) -> DataFrame:
    state, data = given.state, given.data
    if not is_on_spark(data):  # it was checked when it was given
        return local_rows(spark, ((state.uid, row) for row in state.rows(local_values(state, data))))
    assert isinstance(data, DataFrame)
    if data.isStreaming:
        raise ConfigurationError(f"{state.shown}: the DataFrame is a stream. Give one with history, from spark.read.")
    columns = columns_of(state, data.columns)
    table = data.select(*columns)
    if not state.has_keys:
        table = table.coalesce(1)
    rows = table.mapInArrow(_RowMaker(state), ROWS_SCHEMA)
    if state.has_keys:
        persisted = rows.persist(StorageLevel.MEMORY_AND_DISK)
        stack.callback(persisted.unpersist)
        _check_keys(state, rows)
    return rows


def _check_keys(state: GivenState, rows: DataFrame) -> None:
    twice = rows.groupBy("key_bytes").count().where("count > 1").limit(1).collect()
    for key, _ in twice:
        found = Codec(state.types).loads(bytes(key), state.shown)
        raise ConfigurationError(f"{state.shown}: the key {shorten(found)} occurs twice.")


@dataclass(frozen=True)
class _RowMaker:
    """Makes the rows of a given state. Sent to the tasks."""

    state: GivenState

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for ``mapInArrow``."""
        with marked_failures():
            state = self.state
            given = (row for batch in batches for row in local_values(state, pa.Table.from_batches([batch])))
            yield from to_row_batches((state.uid, row) for row in state.rows(given))


@dataclass(frozen=True)
class _RowEditor:
    """Edits rows. Sent to the tasks."""

    edits: tuple[Edit, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for ``mapInArrow``."""
        with marked_failures():
            edit = edit_rows(self.edits)
            edited = (edit(uid, row) for uid, row in _rows(batches))
            yield from to_row_batches(row for row in edited if row is not None)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, StateRow]]:
    for batch in batches:
        for uid, subtask, kind, *rest in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield uid, StateRow(subtask, RowKind(kind), *rest)
