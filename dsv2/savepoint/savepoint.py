"""``Savepoint``: what a savepoint holds, as data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dsv2.errors import ConfigurationError
from dsv2.folders import Folder, literal_path
from dsv2.paths import local_folder
from dsv2.program.description import FURTHER
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.migrations import split_name
from dsv2.runtime.state.rows import RowKind
from dsv2.savepoint.difference import SavepointDifference, difference
from dsv2.savepoint.draft import Draft
from dsv2.savepoint.editor import SavepointEditor
from dsv2.savepoint.metadata import Origin, SavepointInfo
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.tables import SavepointTable, table_in
from dsv2.state.types import classes_in

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ("Savepoint", "StateTable")

_OF_STATES = (RowKind.KEYED, RowKind.EXPIRING, RowKind.SUBTASK_STATE)


class Savepoint:
    """Reads a savepoint. Create one with ``open``.

    Attributes:
        path: The folder.
    """

    def __init__(self, folder: Folder) -> None:
        self._reader = SavepointReader(folder)
        self._folder = folder
        self.path = folder.path

    @staticmethod
    def open(path: str | PathLike[str], *, spark: SparkSession | None = None) -> Savepoint:
        """Open a savepoint and check that its files are complete.

        Args:
            path: The folder: a path, or a URI.
            spark: A session, for a path on another file system than the local disk. None (default): a local path.

        Raises:
            ConfigurationError: The folder is not a savepoint, or cannot be read.
            IncompatibleCheckpointError: A later version of dsv2 wrote it.
            CorruptDataError: A file is damaged, missing or foreign; names it.
        """
        if spark is None:
            return Savepoint(local_folder(path, "Open it with spark=..."))
        usable = import_module("runtime_spark.failures").usable
        with usable(f"The savepoint {fspath(path)}"):
            return Savepoint(import_module("runtime_spark.folders").open_folder(spark, fspath(path)))

    @property
    def info(self) -> SavepointInfo:
        """The description: versions, origin, program, files."""
        return self._reader.info

    @property
    def origin(self) -> Origin:
        """The job that the savepoint was taken from."""
        return self.info.origin

    @property
    def operators(self) -> Mapping[str, Sequence[str]]:
        """The names of the declared states of each operator, by uid. Those of windows have no tables of their own."""
        program: Mapping[str, Any] = self.info.program["operators"]
        return {
            uid: tuple(sorted(name for name in program[uid]["states"] if not name.endswith(FURTHER)))
            for uid in sorted(program)
        }

    @property
    def positions(self) -> Mapping[str, Mapping[str, Any]]:
        """The offset of each source, by uid."""
        return {uid: source.offset for uid, source in self.info.sources.items()}

    def state(self, uid: str, name: str, *, version: int | None = None) -> StateTable:
        """Return a declared state as a table.

        Args:
            uid: The uid of the operator.
            name: The name of the state.
            version: The version of the values. None (default): that of the last program. A job converts values of
                earlier versions when it first reads them, so a savepoint may have others too, see
                ``StateTable.other_versions``.

        Raises:
            ConfigurationError: There is no such operator or state.
        """
        if uid not in self.operators:
            raise ConfigurationError(f"{self.path} has no operator {uid!r}. It has: {_listed(self.operators)}.")
        if name not in self.operators[uid]:
            windows = f"{name}{FURTHER}" in self.info.program["operators"][uid]["states"]
            why = " Windows keep it, and it has no table of its own." if windows else ""
            raise ConfigurationError(
                f"Operator {uid!r} has no state {name!r}.{why} It has: {_listed(self.operators[uid])}."
            )
        if version is None:
            version = self.info.program["operators"][uid]["states"][name].get("version", 1)
        tables = {
            of_version: table
            for table in self.info.tables
            if table.id.uid == uid and table.id.kind in _OF_STATES
            for stored, of_version in [split_name(table.id.state or "")]
            if stored == name
        }
        others = tuple(sorted(tables.keys() - {version}))
        return StateTable(self._folder, self._reader, uid, name, tables.get(version), others)

    def timers(self, uid: str) -> StateTable:
        """Return the timers of an operator as a table: for each key and time domain, the times in ms.

        Raises:
            ConfigurationError: There is no such operator.
        """
        if uid not in self.operators:
            raise ConfigurationError(f"{self.path} has no operator {uid!r}. It has: {_listed(self.operators)}.")
        tables = [t for t in self.info.tables if t.id.uid == uid and t.id.kind == RowKind.TIMERS]
        return StateTable(self._folder, self._reader, uid, "timers", tables[0] if tables else None)

    def verify(self) -> None:
        """Read all files and compare their digests. Raises ``CorruptDataError`` for the first that has changed."""
        self._reader.verify()

    def edit(self, *, types: Collection[type] = ()) -> SavepointEditor:
        """Begin to change the savepoint into a new one. This one stays as it is.

        Args:
            types: The classes of keys and values that functions get, such as dataclasses and named tuples. Needed by
                ``map_state`` and ``filter_keys`` only.
        """
        classes = set[type]().union(*map(classes_in, types))
        return SavepointEditor(Draft(self.info, TypeRegistry().with_classes(classes), self._reader))

    def diff(self, other: Savepoint) -> SavepointDifference:
        """Compare with a second savepoint. Returns how ``other`` differs from this one; falsy if it does not."""
        return difference(self._reader, other._reader)

    def __repr__(self) -> str:
        origin = self.origin
        return f"<savepoint of {origin.job_name!r} after micro-batch {origin.batch_id}: {self.path}>"


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
        folder: Folder,
        reader: SavepointReader,
        uid: str,
        name: str,
        table: SavepointTable | None,
        other_versions: Sequence[int] = (),
    ) -> None:
        self.other_versions = other_versions
        self._folder = folder
        self._reader = reader
        self._table = table
        self._shown = f"state {name!r} of {uid!r}"
        self.path = None if table is None else folder.place(table.folder)

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
        columns = self._columns(self._table)
        for name, data in self._reader.contents(self._table):
            yield table_in(data, name, columns)

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
        path = literal_path(self._folder.uri(self._table.folder))
        return spark.read.parquet(path).select(*self._columns(self._table))

    def __repr__(self) -> str:
        return f"<{self._shown}>"

    @staticmethod
    def _columns(table: SavepointTable) -> list[str]:
        value = "value" if table.value is not None else "value_bytes"
        if table.id.kind == RowKind.SUBTASK_STATE:
            return ["subtask", value]
        key = "key" if table.key is not None else "key_bytes"
        return ["subtask", *(["state"] if table.id.kind == RowKind.TIMERS else []), key, value]


def _listed(names: Mapping[str, object] | Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
