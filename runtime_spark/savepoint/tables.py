"""Writes rows of state as the tables of a savepoint, in Spark tasks, to any file system that Spark can reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.pandas.types import from_arrow_schema

from dsv2.base.folders import Folder, literal_path
from dsv2.checkpoint.column_types import ColumnType
from dsv2.checkpoint.program import ProgramDescription
from dsv2.errors import CorruptDataError
from dsv2.runtime.exchange.gate_states import held_records
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.placeholders import StandIns
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.metadata import SavepointFile, SavepointInfo
from dsv2.savepoint.tables import SavepointTable, TableId
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.session import writing_parquet

_TABLE = "table"
_ROWS_PER_FILE = 1 << 20
HAVE_STATE = [kind.value for kind in RowKind if kind.is_of_state]
"""The kinds of rows that belong to a declared state."""


def write_tables(rows: DataFrame, folder: Folder, program: ProgramDescription) -> list[SavepointTable]:
    """Write ``rows`` and return their tables. Reads the rows several times.

    Args:
        rows: Rows with the columns ``ROWS_SCHEMA``.
        folder: The savepoint.
        program: The last program, which declares the types of states.
    """
    groups: dict[tuple[ColumnType | None, ColumnType | None], list[SavepointTable]] = {}
    for table in _tables(rows, program):
        groups.setdefault((table.key, table.value), []).append(table)
    written: list[SavepointTable] = []
    for number, alike in enumerate(groups.values()):
        place = f"state/{number}"
        # Each write takes some time, so tables with the same columns are written together.
        with writing_parquet(rows.sparkSession):
            _write(rows, alike, folder.uri(place))
        written += [replace(table, folder=f"{place}/{_TABLE}={table.folder}") for table in alike]
    return sorted(written, key=lambda table: table.folder)


def _tables(rows: DataFrame, program: ProgramDescription) -> Iterator[SavepointTable]:
    of_table = rows.groupBy("uid", "kind", F.when(F.col("kind").isin(HAVE_STATE), F.col("state")).alias("state"))
    found = of_table.agg(F.min("key_bytes")).collect()
    codec = Codec(StandIns())
    in_order = sorted(found, key=lambda row: (row[0], row[1], row[2] or ""))
    for number, (uid, kind, state, key) in enumerate(in_order):
        table = TableId(uid, RowKind(kind), state)
        first = StateRow(0, table.kind, state, None if key is None else bytes(key), None)
        yield SavepointTable.of(table, table.folder(number), first, program, codec)


def _write(rows: DataFrame, tables: Sequence[SavepointTable], uri: str) -> None:
    make = _ColumnMaker({table.id: table for table in tables})
    kinds = sorted({table.id.kind for table in tables})
    own = rows.where(F.col("kind").isin(kinds))
    typed = own.mapInArrow(make, from_arrow_schema(make.schema))
    in_parquet = typed.write.partitionBy(_TABLE).option("maxRecordsPerFile", _ROWS_PER_FILE)
    in_parquet.option("compression", "zstd").parquet(uri)


@dataclass(frozen=True)
class _ColumnMaker:
    """Adds the typed columns to rows of tables that have the same columns. Sent to the tasks."""

    tables: Mapping[TableId, SavepointTable]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the tables, and the name of the table."""
        return next(iter(self.tables.values())).schema().append(pa.field(_TABLE, pa.string()))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for ``mapInArrow``."""
        codec = Codec(StandIns())
        with marked_failures():
            for batch in batches:
                for table in self.tables.values():
                    rows = batch.filter(_is_in(table.id, batch))
                    if rows.num_rows:
                        yield self._batch(table, rows, codec)

    def _batch(self, table: SavepointTable, rows: pa.RecordBatch, codec: Codec) -> pa.RecordBatch:
        columns = table.typed(rows, codec).columns
        names = pa.array([table.folder] * rows.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([*columns, names], schema=self.schema)


def holding_operators(rows: DataFrame, program: ProgramDescription) -> list[str]:
    """Return the uids of operators that hold back records behind an aligned watermark.

    Args:
        rows: Rows with the columns ``ROWS_SCHEMA``.
        program: The last program.
    """
    if not any(watermark.aligned for watermark in program.watermarks.values()):
        return []
    gates = rows.where((F.col("kind") == RowKind.PART.value) & (F.col("state") == "gates"))
    found = gates.select("uid", "value_bytes").mapInArrow(_holding, "uid string")
    return sorted(uid for (uid,) in found.distinct().collect())


def _holding(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    codec = Codec(StandIns())
    with marked_failures():
        for batch in batches:
            uids = [
                uid
                for uid, gates in zip(*(column.to_pylist() for column in batch.columns), strict=True)
                if any(map(held_records, codec.loads(gates, f"State of {uid}")))
            ]
            yield pa.RecordBatch.from_pydict({"uid": pa.array(uids, pa.string())})


def _is_in(table: TableId, rows: pa.RecordBatch) -> pa.Array:
    """Return whether each row belongs to a table."""
    found = pc.and_(pc.equal(rows.column("uid"), table.uid), pc.equal(rows.column("kind"), table.kind))
    return found if table.state is None else pc.and_(found, pc.equal(rows.column("state"), table.state))


def file_digests(spark: SparkSession, folder: Folder, tables: Iterable[SavepointTable]) -> dict[str, SavepointFile]:
    """Return the size and digest of each file of ``tables``, by its path in the savepoint. Read in Spark tasks."""
    folders = [table.folder for table in tables]
    if not folders:
        return {}
    files = spark.read.format("binaryFile").load([literal_path(folder.uri(name)) for name in folders])
    digests = files.select("path", "length", F.sha2("content", 256)).collect()
    found = {f"state/{path.rpartition('/state/')[2]}": SavepointFile(size, sha256) for path, size, sha256 in digests}
    return dict(sorted(found.items()))


def check_digests(spark: SparkSession, folder: Folder, info: SavepointInfo) -> None:
    """Compare the digests of all files, in Spark tasks. Raises ``CorruptDataError`` for a file that has changed."""
    found = file_digests(spark, folder, info.tables)
    for name, file in info.files.items():
        if found.get(name) != file:
            raise CorruptDataError(
                f"{folder.place(name)} was changed since the savepoint was taken. Restore the savepoint from a backup."
            )
