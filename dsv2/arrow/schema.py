"""Maps record classes to Arrow schemas, and records to rows of tables."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import Any, get_args, get_origin

import pyarrow as pa

from dsv2.arrow.casts import array_of, cast_exactly, may_be_cast
from dsv2.base.optional_types import without_none
from dsv2.errors import PlanError, SchemaError

_TYPES: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us"),
    Decimal: pa.decimal128(38, 18),
}


def schema_of(kind: type) -> pa.Schema:
    """Return the schema of a NamedTuple class or dataclass.

    All columns are nullable, because Arrow's compute functions return nullable columns. A null in a field that is not
    optional is rejected when a table is emitted.

    Raises:
        SchemaError: The class has no columns, or a field has no column type.
    """
    return _columns(kind)[0]


def column_type(given: pa.DataType) -> tuple[type, pa.DataType]:
    """Return the type of a field, and that of its column, which hold the values of a column of another type.

    Raises:
        PlanError: There is none.
    """
    for kind, wanted in _TYPES.items():
        if may_be_cast(given, wanted) and not pa.types.is_null(given):
            return kind, wanted
    raise PlanError(f"a column of {given} cannot be a key.")


def names_without_none(kind: type) -> Sequence[str]:
    """Return the names of the fields that are not optional."""
    return _columns(kind)[1]


@cache
def _columns(kind: type) -> tuple[pa.Schema, tuple[str, ...]]:
    """The schema, and the names of the columns that must not contain nulls."""
    names = field_names(kind)
    try:
        hints = typing.get_type_hints(kind)
    except NameError as error:
        raise SchemaError(f"The field types of {kind.__qualname__} cannot be resolved: {error}.") from error
    plain = {name: without_none(hints[name]) for name in names}
    schema = pa.schema([pa.field(name, _type(kind, name, hint)) for name, (hint, _) in plain.items()])
    return schema, tuple(name for name, (_, nullable) in plain.items() if not nullable)


def refuse_nulls(table: pa.Table, kind: type) -> None:
    """Check that ``table`` has no null in a field that is not optional.

    Raises:
        SchemaError: It has one.
    """
    required = names_without_none(kind)
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if column.null_count and name in required:
            raise SchemaError(f"Field {name!r} of {kind.__qualname__} is None in a record.")


def can_be_columns(kind: type, schema: pa.Schema) -> bool:
    """Return whether columns of ``schema`` represent records of ``kind``, possibly after widening numbers."""
    try:
        wanted = schema_of(kind)
    except SchemaError:
        return False
    places = [schema.get_field_index(name) for name in wanted.names]
    return all(
        place >= 0 and _widens(schema.field(place).type, field.type)
        for place, field in zip(places, wanted, strict=True)
    )


def rows_to_table(rows: Sequence[Any], kind: type, names: Collection[str] | None = None) -> pa.Table:
    """Convert records to a table. The fields of records of other classes are matched by name.

    Args:
        rows: The records.
        kind: The class of the table.
        names: The fields that become columns. None: all.

    Raises:
        SchemaError: A record has no such field, or a value does not fit the type of its field; names the field.
    """
    schema = schema_of(kind)
    fields = [field for field in schema if names is None or field.name in names]
    columns = [
        array_of(values, field.type, _place(kind, field.name))
        for field, values in zip(fields, _values(rows, kind, [field.name for field in fields]), strict=True)
    ]
    table = pa.table(columns, pa.schema(fields))
    refuse_nulls(table, kind)
    return table


def _values(rows: Sequence[Any], kind: type, names: Sequence[str]) -> Sequence[Sequence[Any]]:
    """The values of each field."""
    if issubclass(kind, tuple) and set(map(type, rows)) == {kind}:
        columns = list(zip(*rows, strict=True))
        return columns if len(columns) == len(names) else [columns[field_names(kind).index(name)] for name in names]
    try:
        return [list(map(attrgetter(name), rows)) for name in names]
    except AttributeError as error:
        row, name = next((row, name) for name in names for row in rows if not hasattr(row, name))
        raise SchemaError(
            f"A record has no field {name!r} of {kind.__qualname__}: {row!r:.200}, a {type(row).__qualname__}. Map the "
            f"records to {kind.__qualname__}."
        ) from error


def _place(kind: type, name: str) -> str:
    return f"Field {name!r} of {kind.__qualname__}"


def fitted(table: pa.Table, kind: type, *, keeps_decimals: bool = False) -> pa.Table:
    """Return the columns of the class, matched by name. Other columns are dropped.

    Args:
        table: The table.
        kind: The class.
        keeps_decimals: Whether decimals keep their precision and scale, for a table that only becomes records.

    Raises:
        SchemaError: A column is missing, or is not exactly cast to the type of its field, or contains nulls.
    """
    schema = schema_of(kind)
    if table.schema.equals(schema):
        refuse_nulls(table, kind)
        return table
    for name in schema.names:
        if len(table.schema.get_all_field_indices(name)) != 1:
            found = "several columns" if name in table.schema.names else "no column"
            given = ", ".join(f"{field.name} {field.type}" for field in table.schema)
            raise SchemaError(
                f"A table has {found} {name!r}, so it does not match {kind.__qualname__}. Its columns are {given}."
            )
    columns = []
    for field in schema:
        column = table.column(field.name)
        if not (keeps_decimals and pa.types.is_decimal(field.type) and pa.types.is_decimal(column.type)):
            column = cast_exactly(column, field.type, _place(kind, field.name))
        columns.append(column)
    chosen = pa.table(columns, schema.names)
    refuse_nulls(chosen, kind)
    return chosen


def table_to_rows(table: pa.Table, kind: type) -> list[Any]:
    """Convert the rows of a table with the schema of ``kind`` to records."""
    columns = [column.to_pylist() for column in table.columns]
    return list(map(maker_of(kind), *columns))


@cache
def maker_of(kind: type) -> Callable[..., Any]:
    """Return what creates a record of ``kind`` from the values of its fields, in order."""
    if dataclasses.is_dataclass(kind) and any(field.kw_only for field in dataclasses.fields(kind)):
        names = field_names(kind)
        return lambda *values: kind(**dict(zip(names, values, strict=True)))
    return kind


def field_names(kind: type) -> list[str]:
    """Return the names of the fields of a NamedTuple class or dataclass. Raises ``SchemaError`` for other classes."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.init]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return list(kind._fields)
    raise SchemaError(f"{kind.__qualname__} has no columns. Use a NamedTuple class or a dataclass.")


def _type(kind: type, name: str, hint: Any) -> pa.DataType:
    if hint in _TYPES:
        return _TYPES[hint]
    if typing.get_origin(hint) is list and (arguments := typing.get_args(hint)):
        return pa.list_(_type(kind, name, without_none(arguments[0])[0]))
    raise SchemaError(
        f"Field {name!r} of {kind.__qualname__} has type {hint}, for which there is no column type. Use bool, int, "
        f"float, str, bytes, date, datetime (without time zone), Decimal, a list of one of these, or one with | None."
    )


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    if given == wanted:
        return True
    if pa.types.is_int64(wanted):
        return bool(pa.types.is_signed_integer(given))
    return bool(pa.types.is_float64(wanted) and pa.types.is_float32(given))


def declared_types(owner: type, base: type, example: str) -> tuple[type, ...]:
    """Return ``Click`` and ``Total`` for ``class Sums(ArrowProcessFunction[Click, Total])``.

    Args:
        owner: The class to read.
        base: The generic class with the type parameters, or a base class of it.
        example: Example type arguments, for the error message.

    Raises:
        PlanError: ``owner`` does not declare its record classes.
    """
    count = len(example.split(","))
    for kind in owner.__mro__:
        for given in getattr(kind, "__orig_bases__", ()):
            origin, types = get_origin(given), get_args(given)
            fits = isinstance(origin, type) and issubclass(origin, base) and len(types) == count
            if fits and all(isinstance(of, type) for of in types):
                return types
    raise PlanError(
        f"{owner.__qualname__} must declare the classes of its records: "
        f"class {owner.__name__}({base.__name__}[{example}]), with your own classes."
    )
