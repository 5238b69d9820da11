"""The contents of windows and joins, as tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dsv2.checkpoint.column_types import ColumnType, StructColumn, column_type_of_value, list_of, map_of
from dsv2.errors import CorruptDataError
from dsv2.extension.join.contents import BUFFERED_ROWS, LATEST, LATEST_ROWS, RECORD, TIME, WAITING
from dsv2.extension.window.contents import TIMED_RECORDS
from dsv2.extension.window.entry import CONTENTS, ENDS, STATES
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.placeholders import StandIns
from dsv2.runtime.state.migrations import split_name
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.columns import to_array
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.state_table import StateTable
from dsv2.savepoint.tables import rows_in

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


_SIDES = ("first", "second")
_INFERRED = ("key", "value")
_Found: TypeAlias = Iterator[tuple[Any, ...]]


@dataclass(frozen=True)
class ContentsFormat:
    """The format of the contents of an operator.

    Attributes:
        columns: The columns between ``key`` and ``value``, with their types.
        kinds: The kinds of rows that hold contents.
        read: Returns the columns after ``key`` of each content in the value of a row. Gets the row and the value.
        value: The type of ``value``; None: it is inferred.
    """

    columns: Mapping[str, ColumnType]
    kinds: Sequence[RowKind]
    read: Callable[[StateRow, Any], _Found]
    value: ColumnType | None = None


def contents_of(kept: str) -> ContentsFormat:
    """Return how to read what an operator keeps. ``kept``: ``WrappingFunction.contents``."""
    if kept == BUFFERED_ROWS:
        return ContentsFormat({"side": "string", "timestamp": "int64"}, [RowKind.IN_PANE], _buffered)
    if kept == LATEST_ROWS:
        return ContentsFormat({"side": "string", "timestamp": "int64"}, [RowKind.ENTRY], _latest)
    of_window = _OF_WINDOWS[kept]
    columns: dict[str, ColumnType] = {"window": "int64", "end": "int64"}
    if kept == "records of two inputs":
        columns["side"] = "string"

    def read(row: StateRow, value: Any) -> _Found:
        windows: Mapping[Any, Any]
        if row.kind is RowKind.IN_PANE:
            windows, ends = {int(row.state or ""): value}, {}
        else:
            windows, ends = value.get(CONTENTS, {}), value.get(ENDS, {})
        for window, content in windows.items():
            if content is not None:  # otherwise a trigger has purged it
                bounds = window if isinstance(window, tuple) else (window, ends.get(window))
                for found in of_window(content):
                    yield *bounds, *found

    return ContentsFormat(columns, [RowKind.IN_PANE, RowKind.ENTRY], read)


def window_state(name: str, column: ColumnType | None) -> ContentsFormat:
    """Return how to read a state of windows. ``column``: The column type of its values."""

    def read(row: StateRow, value: Any) -> _Found:
        for window, states in value.get(STATES, {}).items():
            for stored, content in states.items():
                if split_name(stored)[0] == name:
                    yield window[0] if isinstance(window, tuple) else window, content

    return ContentsFormat({"window": "int64"}, [RowKind.ENTRY], read, column)


def _buffered(row: StateRow, value: Any) -> _Found:
    side = _SIDES[int(row.state or "") % 2]
    for buffered in value:
        yield side, buffered[TIME], buffered[RECORD]


def _latest(row: StateRow, value: Any) -> _Found:
    if LATEST in value:
        yield _SIDES[1], None, value[LATEST]
    records, timestamps, _ = value.get(WAITING, ((), (), None))
    for record, timestamp in zip(records, timestamps, strict=True):
        yield _SIDES[0], timestamp, record


_OF_WINDOWS: Mapping[str, Callable[[Any], _Found]] = {
    "records": lambda content: ((record,) for record in content),
    TIMED_RECORDS: lambda content: ((record,) for record, _ in content),
    "records of two inputs": lambda content: (
        (side, record) for side, records in zip(_SIDES, content, strict=True) for record in records
    ),
    "accumulators": lambda content: iter([(content,)]),
    "reduced records": lambda content: iter([(content,)]),
}


class ContentsTable(StateTable):
    """The contents of windows or of a join. No Parquet file holds them as they are, so ``path`` is None."""

    def __init__(self, reader: SavepointReader, uid: str, name: str, layout: ContentsFormat) -> None:
        super().__init__(reader, uid, name, None)
        self._tables = [table for table in reader.info.tables if table.id.uid == uid and table.id.kind in layout.kinds]
        self._layout = layout
        self._codec = Codec(StandIns())

    def parts(self) -> Iterator[pa.Table]:
        """Return the table in one or more parts with the same columns. Only one part at a time is in memory."""
        types: dict[str, ColumnType | None] = dict.fromkeys(_INFERRED)
        types["value"] = self._layout.value
        parts = 0
        for table in self._tables:
            for name, data in self._reader.contents(table):
                rows = list(self._rows(rows_in(data, name), name))
                if rows:
                    yield self._part(rows, types)
                    parts += 1
        if not parts:
            yield self._part([], types)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the table as a Spark ``DataFrame``. It is read into memory."""
        return spark.createDataFrame(self.to_arrow())

    def _rows(self, rows: Iterable[StateRow], name: str) -> Iterator[tuple[Any, ...]]:
        for row in rows:
            try:
                key, value = (self._codec.loads(part or b"", name) for part in (row.key, row.value))
                for found in self._layout.read(row, value):
                    yield row.subtask, key, *found
            except (AttributeError, IndexError, TypeError, ValueError) as error:
                raise CorruptDataError(f"{name} is damaged: {error!r}. Restore the savepoint from a backup.") from error

    def _part(self, rows: list[tuple[Any, ...]], types: dict[str, ColumnType | None]) -> pa.Table:
        import pyarrow as pa

        names = ("subtask", "key", *self._layout.columns, "value")
        columns = dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))
        arrays = {"subtask": pa.array(columns["subtask"], pa.int32())}
        for name in names[1:]:
            if name in self._layout.columns:
                arrays[name] = to_array(columns[name], self._layout.columns[name])
                continue
            found = types[name]
            if found is None:
                found = types[name] = _column_of_any(columns[name])
            if found is not None:
                arrays[name] = to_array(columns[name], found)
            elif rows:
                arrays[f"{name}_bytes"] = pa.array(map(self._codec.dumps, columns[name]), pa.binary())
        return pa.table(arrays)


def _column_of_any(values: Sequence[Any]) -> ColumnType | None:
    """The column type of the first value that has one. Fields of records that are all None are left out."""
    found = _first_type(values)
    if found is not None or not values or not dataclasses.is_dataclass(values[0]):
        return found
    fields: list[tuple[str, ColumnType]] = []
    for field in dataclasses.fields(values[0]):
        held = [part for value in values if (part := getattr(value, field.name, None)) is not None]
        if held:
            kind = _first_type(held)
            if kind is None:
                return None
            fields.append((field.name, kind))
    return StructColumn(tuple(fields)) if fields else None


def _first_type(values: Iterable[Any]) -> ColumnType | None:
    return next((column for value in values if (column := _column_of(value)) is not None), None)


def _column_of(value: Any) -> ColumnType | None:
    """The column type for values like ``value``. A list or dict is typed by its first element."""
    if isinstance(value, list | set | frozenset):
        return list_of(_first_type(value))
    if isinstance(value, dict):
        columns = (map_of(_column_of(key), _column_of(element)) for key, element in value.items())
        return next((column for column in columns if column is not None), None)
    return column_type_of_value(value, _column_of)
