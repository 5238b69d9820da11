"""``StateTable``: one state of a savepoint, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dsv2.base.folders import literal_path
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.tables import SavepointTable, table_in

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class StateTable:
    """One state of a savepoint, as a table.

    Columns: ``subtask``; for keyed state ``key``; and ``value``. Keys and values without a column type are bytes, in
    ``key_bytes`` and ``value_bytes``. A value that does not fit the declared type of the state is null.

    Attributes:
        path: The folder of the Parquet files, for tools such as DuckDB; None if the state is empty.
        other_versions: The versions of values of this state that are not in the table.
    """

    def __init__(
        self,
        reader: SavepointReader,
        uid: str,
        name: str,
        table: SavepointTable | None,
        other_versions: Sequence[int] = (),
    ) -> None:
        self.other_versions = other_versions
        self._reader = reader
        self._table = table
        self._shown = f"state {name!r} of {uid!r}"
        self.path = None if table is None else reader.folder.place(table.folder)

    def to_arrow(self) -> pa.Table:
        """Return the table as a ``pyarrow.Table``. It is read into memory.

        Raises:
            CorruptDataError: A file is damaged; names it.
        """
        import pyarrow as pa

        return pa.concat_tables(self.parts())

    def parts(self) -> Iterator[pa.Table]:
        """Return the table in one or more parts with the same columns. Only one part at a time is in memory.

        Raises:
            CorruptDataError: A file is damaged; names it.
        """
        import pyarrow as pa

        if self._table is None:
            yield pa.table({"subtask": pa.array([], pa.int32())})
            return
        for name, data in self._reader.contents(self._table):
            yield table_in(data, name, self._table.shown_columns)

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a pandas ``DataFrame``. Integers are Python objects if some in their column are null."""
        frame: pd.DataFrame = self.to_arrow().to_pandas(integer_object_nulls=True)
        return frame

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the table as a Spark ``DataFrame``, which is read when it is used.

        The digests of its files are not compared. ``Savepoint.verify`` does this.
        """
        if self._table is None:
            return spark.createDataFrame([], "subtask int")
        path = literal_path(self._reader.folder.uri(self._table.folder))
        return spark.read.parquet(path).select(*self._table.shown_columns)

    def __repr__(self) -> str:
        return f"<{self._shown}>"
