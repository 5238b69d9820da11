"""Converts the records of a ``FileSink`` to Arrow, on both runtimes. A value that Arrow would change is refused."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence, Set
from datetime import MAXYEAR, MINYEAR, UTC, datetime, tzinfo
from ipaddress import IPv4Address, IPv6Address
from numbers import Integral, Number
from operator import attrgetter
from typing import Any, SupportsInt
from uuid import UUID

import pyarrow as pa

from dsv2.base.printable import safe_repr
from dsv2.errors import SchemaError

_BYTES = (bytes, bytearray, memoryview)
_NO_LISTS = (*_BYTES, str, array, Set)
# Arrow converts values of these classes to others without a word, but not those of the second ones.
_CHANGED: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...], tuple[type, ...]], ...] = (
    (pa.types.is_integer, (SupportsInt,), (Integral,)),
    (pa.types.is_floating, (bool,), ()),
    (pa.types.is_date, (datetime, SupportsInt), ()),
    (pa.types.is_timestamp, (Number, UUID, IPv4Address, IPv6Address), ()),  # but not np.datetime64
    (pa.types.is_string, _BYTES, ()),
    (pa.types.is_binary, (str,), ()),
    (pa.types.is_list, _NO_LISTS, ()),
    (pa.types.is_map, _NO_LISTS, ()),
)
_ENDS = (MINYEAR, MAXYEAR)


class RecordWriter:
    """Converts records to Arrow batches of one schema.

    Args:
        schema: The columns, as Spark writes them in JSON.
        arrow: The same columns as a schema of Arrow.
        sink: The sink, for errors.
        zone: The time zone of a datetime that has none. None (default): that of the process.
    """

    def __init__(self, schema: dict[str, Any], arrow: pa.Schema, sink: str, zone: tzinfo | None = None) -> None:
        self._fields: list[dict[str, Any]] = schema["fields"]
        self._arrow = arrow
        self._names = [field["name"] for field in self._fields]
        self._sink = sink
        self._zone = zone

    def write(self, records: Sequence[Any]) -> pa.RecordBatch:
        """Convert ``records`` to a batch.

        Raises:
            SchemaError: A record does not fit; names the first one, and the field.
        """
        try:
            return self._batch(records)
        except Exception:
            for record in records:
                self._try_one(record)
            raise

    def _try_one(self, record: Any) -> None:
        try:
            self._batch([record])
        except Exception as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise SchemaError(
                f"{self._sink}: record {safe_repr(record):.200} does not fit the schema {self._described()}: {reason}"
            ) from error

    def _described(self) -> str:
        kinds = ((field["name"], field["type"]) for field in self._fields)
        return ", ".join(f"{name} {kind if isinstance(kind, str) else kind['type']}" for name, kind in kinds)

    def _batch(self, records: Sequence[Any]) -> pa.RecordBatch:
        columns: list[Sequence[Any]] = list(zip(*self._rows(records), strict=True))
        if len(columns) != len(self._names):
            raise ValueError(f"it has {len(columns)} values")
        arrays = list(map(self._array, columns, self._arrow, self._fields))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _rows(self, records: Sequence[Any]) -> Iterator[Sequence[Any]]:
        samples = {type(record): record for record in records}
        values = {kind: self._values_of(sample) for kind, sample in samples.items()}
        if len(values) == 1:
            return map(next(iter(values.values())), records)
        return (values[type(record)](record) for record in records)

    def _values_of(self, sample: Any) -> Callable[[Any], Sequence[Any]]:
        """Return what gets the values of a record of the class of ``sample``, by the names of its fields."""
        names = self._names
        if isinstance(sample, tuple) and not hasattr(sample, "__fields__"):  # which a Row has
            own_names = getattr(sample, "_fields", None)
            if own_names is None or list(own_names) == names:
                return tuple
        elif isinstance(sample, dict | tuple):
            return lambda record: [record[name] for name in names]
        if len(names) == 1:
            get = attrgetter(names[0])
            return lambda record: (get(record),)
        return attrgetter(*names)

    def _array(self, values: Sequence[Any], field: pa.Field, described: dict[str, Any]) -> pa.Array:
        name, kind = field.name, field.type
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            values = [self._zoned(value) if isinstance(value, datetime) else value for value in values]
        _refuse_changed(values, kind, name)
        try:
            array = pa.array(values, kind, from_pandas=False)
        except Exception as error:
            raise ValueError(f"field {name!r} is {kind}: {error}") from error
        if not described["nullable"] and array.null_count:
            raise ValueError(f"field {name!r} must not be None")
        _refuse_none_within(array, described["type"], name)
        return array

    def _zoned(self, value: datetime) -> datetime:
        if value.tzinfo is not None or value != value:  # NaT
            return value
        return value.astimezone() if self._zone is None else value.replace(tzinfo=self._zone)


def _refuse_changed(values: Sequence[Any], kind: pa.DataType, name: str) -> None:
    """Raise ``TypeError`` if Arrow would convert one of ``values`` to another value of type ``kind``."""
    changed, kept = next((classes for applies, *classes in _CHANGED if applies(kind)), ((), ()))
    for of in set(map(type, values)):
        if issubclass(of, changed) and not issubclass(of, kept):
            value = next(value for value in values if type(value) is of)
            raise TypeError(f"field {name!r} is {kind}: the {of.__name__} {value!r:.100} would be changed. Convert it")
        if pa.types.is_nested(kind):
            continue  # a DatetimeIndex may be a list
        if hasattr(of, "nanosecond") and any(type(value) is of and value.nanosecond for value in values):
            raise TypeError(f"field {name!r} is {kind}, which has no nanoseconds and no NaT. Round it, or use None")
    if pa.types.is_timestamp(kind):
        naive = kind.tz is None
        for value in values:
            if value is not None and (getattr(value, "tzinfo", None) is None) is not naive:
                raise TypeError(f"field {name!r} is {kind}: {value!r:.100} {'has a' if naive else 'has no'} time zone")
            if value is not None and not naive and value.year in _ENDS:
                _refuse_outside(value, kind, name)
    for inner, inner_values in _within(values, kind):
        _refuse_changed(inner_values, inner, name)


def _refuse_outside(value: datetime, kind: pa.DataType, name: str) -> None:
    try:
        value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"field {name!r} is {kind}: {value!r} is not in the years 1 to 9999 of UTC") from error


def _within(values: Sequence[Any], kind: pa.DataType) -> Iterator[tuple[pa.DataType, list[Any]]]:
    """Yield the values in lists, maps or structs, with their type."""
    filled = [value for value in values if value is not None] if pa.types.is_nested(kind) else []
    if pa.types.is_map(kind):
        pairs = [pair for value in filled for pair in (value.items() if isinstance(value, dict) else value)]
        yield kind.key_type, [key for key, _ in pairs]
        yield kind.item_type, [item for _, item in pairs]
    elif pa.types.is_list(kind):
        yield kind.value_type, [item for value in filled for item in value]
    elif pa.types.is_struct(kind):
        if more := {name for value in filled for name in value}.difference(field.name for field in kind):
            raise TypeError(f"a struct has no field {min(more, key=str)!r}: {kind}")
        for field in kind:
            yield field.type, [value.get(field.name) for value in filled]


def _refuse_none_within(array: pa.Array, kind: Any, name: str) -> None:
    # Neither Arrow nor Spark checks this, and a None would be read as zero.
    form = None if isinstance(kind, str) else kind["type"]
    if form == "array":
        inner, nullable, inner_kind = array.flatten(), kind["containsNull"], kind["elementType"]
    elif form == "map":
        inner, nullable, inner_kind = array.items, kind["valueContainsNull"], kind["valueType"]
    else:
        return
    if inner.null_count and not nullable:
        raise ValueError(f"field {name!r} must not contain None")
    _refuse_none_within(inner, inner_kind, name)
