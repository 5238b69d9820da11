"""``Savepoint``: what a savepoint holds, as data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dsv2.base.folders import Folder
from dsv2.checkpoint.program import FURTHER, OperatorDescription
from dsv2.checkpoint.record import Origin
from dsv2.checks.paths import local_folder
from dsv2.errors import ConfigurationError
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.migrations import split_name
from dsv2.runtime.state.rows import RowKind
from dsv2.savepoint.contents import ContentsTable, contents_of, window_state
from dsv2.savepoint.difference import SavepointDifference, difference
from dsv2.savepoint.edit_writer import Draft
from dsv2.savepoint.editor import SavepointEditor
from dsv2.savepoint.editor_checks import listed
from dsv2.savepoint.metadata import SavepointInfo, SinkPosition
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.state_table import StateTable
from dsv2.state.types import classes_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Savepoint:
    """Reads a savepoint. Create one with ``open``.

    Attributes:
        path: The folder.
    """

    def __init__(self, folder: Folder) -> None:
        self._reader = SavepointReader(folder)
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
        usable = import_module("runtime_spark.frames.failures").usable
        with usable(f"The savepoint {fspath(path)}"):
            return Savepoint(import_module("runtime_spark.platform.folders").open_folder(spark, fspath(path)))

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
        """The names of the declared states of each operator, by uid, without those of windows."""
        return self.info.states

    @property
    def positions(self) -> Mapping[str, Mapping[str, Any]]:
        """The offset of each source, by uid."""
        return self.info.offsets

    @property
    def sinks(self) -> Mapping[str, SinkPosition]:
        """The output of each sink so far, by uid. A job that continues from here writes the next micro-batch."""
        return self.info.sink_positions

    def state(self, uid: str, name: str, *, version: int | None = None) -> StateTable:
        """Return a declared state as a table.

        Args:
            uid: The uid of the operator.
            name: The name of the state. A state of windows also has the column ``window``, see ``contents``.
            version: The version of the values. None (default): that of the last program. A job converts values of
                earlier versions when it first reads them, so a savepoint may have others too, see
                ``StateTable.other_versions``.

        Raises:
            ConfigurationError: There is no such operator or state.
        """
        operator = self._operator(uid)
        if (in_windows := operator.states.get(f"{name}{FURTHER}")) is not None:
            return ContentsTable(self._reader, uid, name, window_state(name, in_windows.column))
        if name not in self.operators[uid]:
            raise ConfigurationError(f"Operator {uid!r} has no state {name!r}. It has: {listed(self.operators[uid])}.")
        if version is None:
            version = operator.states[name].version
        tables = {
            of_version: table
            for table in self.info.tables
            if table.id.uid == uid and table.id.kind.is_of_state
            for stored, of_version in [split_name(table.id.state or "")]
            if stored == name
        }
        others = tuple(sorted(tables.keys() - {version}))
        return StateTable(self._reader, uid, name, tables.get(version), others)

    def timers(self, uid: str) -> StateTable:
        """Return the timers of an operator as a table: for each key and time domain, the times in ms.

        Raises:
            ConfigurationError: There is no such operator.
        """
        self._operator(uid)
        tables = [t for t in self.info.tables if t.id.uid == uid and t.id.kind == RowKind.TIMERS]
        return StateTable(self._reader, uid, "timers", tables[0] if tables else None)

    def contents(self, uid: str) -> StateTable:
        """Return what windows or a join keep, as a table with a row for each record or accumulator.

        Windows have the columns ``subtask``, ``key``, ``window`` (the start in ms; for count windows, the number of the
        first record; else -1), ``end`` (of sessions, in ms), ``side`` (with two inputs) and ``value``. Joins have
        ``subtask``, ``key``, ``side``, ``timestamp`` (in ms) and ``value``. ``side`` is ``first`` or ``second``. The
        types of keys and values are those of the first one, because they are not declared. A value that does not fit
        is null, and fields of records that are None in all of them are left out.

        Raises:
            ConfigurationError: There is no such operator, or it is neither.
        """
        kept = self._operator(uid).contents
        if not kept:
            raise ConfigurationError(f"Operator {uid!r} has neither windows nor a join that buffers records.")
        return ContentsTable(self._reader, uid, "contents", contents_of(kept))

    def _operator(self, uid: str) -> OperatorDescription:
        if uid not in self.operators:
            raise ConfigurationError(f"{self.path} has no operator {uid!r}. It has: {listed(self.operators)}.")
        return self.info.program.operators[uid]

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
