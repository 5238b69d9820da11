"""Encodes Arrow tables as the files of a ``FileSink``, in the formats that Spark writes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from dsv2.connectors.files.written_tables import table_schema
from dsv2.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ("encoded", "folder_of", "joined", "partitions", "table_of")

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^")  # as Spark escapes them
_QUOTED = frozenset('",\n\r\\')


def table_of(records: Sequence[Any], schema: dict[str, Any], sink: str) -> pa.Table:
    """Convert records to a table of ``schema``.

    Raises:
        SchemaError: A record does not fit; names the sink and the record.
    """
    try:
        return _table(records, schema)
    except Exception as error:
        for record in records:
            try:
                _table([record], schema)
            except Exception as of_record:
                reason = f"it has no {of_record}" if isinstance(of_record, KeyError) else str(of_record)
                names = ", ".join(field["name"] for field in schema["fields"])
                raise SchemaError(
                    f"{sink}: record {record!r:.200} does not fit the columns {names}: {reason}"
                ) from of_record
        raise SchemaError(f"{sink}: records do not fit the schema: {error}") from error


def _table(records: Sequence[Any], schema: dict[str, Any]) -> pa.Table:
    import pyarrow as pa

    names = [field["name"] for field in schema["fields"]]
    columns = list(zip(*[_values(record, names) for record in records], strict=True))
    kinds = table_schema(schema)
    arrays = [
        _array(column, field, nullable=described["nullable"])
        for column, field, described in zip(columns, kinds, schema["fields"], strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=kinds)


def _values(record: Any, names: Sequence[str]) -> Sequence[Any]:
    if isinstance(record, tuple):
        own = getattr(record, "_fields", None)
        if own is None or list(own) == names:
            if len(record) != len(names):
                raise ValueError(f"it has {len(record)} values")
            return record
    if isinstance(record, dict):
        return [record[name] for name in names]
    return [getattr(record, name) for name in names]


def _array(values: Sequence[Any], field: pa.Field, *, nullable: bool) -> pa.Array:
    import pyarrow as pa

    for is_lossy, lost in ((pa.types.is_integer, float), (pa.types.is_date, datetime)):
        if is_lossy(field.type) and any(isinstance(value, lost) for value in values):
            raise TypeError(f"field {field.name!r} is {field.type}: a {lost.__name__} would be truncated")
    if pa.types.is_timestamp(field.type) and field.type.tz is not None:
        values = [value.astimezone(UTC) if isinstance(value, datetime) else value for value in values]
    array = pa.array(values, field.type)
    if array.null_count and not nullable:
        raise ValueError(f"field {field.name!r} must not be None")
    return array


def partitions(table: pa.Table, columns: Sequence[str], sink: str) -> dict[str, pa.Table]:
    """Divide ``table`` by the values of ``columns``, which become folders. Without columns, there is one without name.

    Raises:
        SchemaError: A value cannot be the name of a folder.
    """
    import pyarrow as pa

    if not columns:
        return {"": table}
    indices: dict[str, list[int]] = {}
    for number, values in enumerate(zip(*(table.column(name).to_pylist() for name in columns), strict=True)):
        folder = "/".join(folder_of(name, value, sink) for name, value in zip(columns, values, strict=True))
        indices.setdefault(folder, []).append(number)
    rest = table.drop_columns(list(columns))
    return {folder: rest.take(pa.array(found)) for folder, found in indices.items()}


def folder_of(column: str, value: Any, sink: str) -> str:
    """Return the name of the folder for a value of a partition column. Raises ``SchemaError`` if it cannot have one."""
    if value in ("", _NULL_FOLDER):
        raise SchemaError(
            f"{sink}: a record has an empty string, or {_NULL_FOLDER!r}, in the column {column!r} of "
            f"partition_by. Readers could not distinguish it from None. Map it to another value."
        )
    text = _NULL_FOLDER if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"{_escaped(column)}={_escaped(text)}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED or char < " " else char for char in text)


def encoded(table: pa.Table, format: str) -> bytes:
    """Encode ``table`` as one file."""
    return _ENCODERS[format](table)


def joined(files: Sequence[bytes], format: str) -> tuple[bytes, tuple[int, ...]]:
    """Join files of one schema to one. Also returns the length of each: rows for Parquet, else bytes."""
    if format != "parquet":
        return b"".join(files), tuple(map(len, files))
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Without threads: one of Arrow that still refers to ``data`` when Python ends would abort the process.
    tables = [pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False) for data in files]
    return _parquet(pa.concat_tables(tables)), tuple(table.num_rows for table in tables)


def _parquet(table: pa.Table) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = pa.BufferOutputStream()
    pq.write_table(table, target, compression="snappy", coerce_timestamps="us")
    return bytes(target.getvalue())


def _json(table: pa.Table) -> bytes:
    columns = [(json.dumps(field.name), _to_json(field.type)) for field in table.schema]
    lines = []
    for values in zip(*(column.to_pylist() for column in table.columns), strict=True):
        found = zip(columns, values, strict=True)
        row = [f"{name}:{change(value)}" for (name, change), value in found if value is not None]
        lines.append(f"{{{','.join(row)}}}\n")
    return "".join(lines).encode()


def _csv(table: pa.Table) -> bytes:
    changes = [_to_text(field.type) for field in table.schema]
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    lines = [
        ",".join("" if value is None else change(value) for change, value in zip(changes, values, strict=True))
        for values in rows
    ]
    return "".join(f"{line}\n" for line in lines).encode()


_ENCODERS: dict[str, Callable[[Any], bytes]] = {"parquet": _parquet, "json": _json, "csv": _csv}


def _to_json(kind: pa.DataType) -> Callable[[Any], str]:
    """Return how values of a column are written in JSON."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        element = _or_null(_to_json(kind.value_type))
        return lambda values: f"[{','.join(map(element, values))}]"
    if pa.types.is_map(kind):
        item = _or_null(_to_json(kind.item_type))
        return lambda pairs: f"{{{','.join(f'{_quote(_key(key))}:{item(value)}' for key, value in pairs)}}}"
    if pa.types.is_struct(kind):
        fields = [(field.name, _quote(field.name), _to_json(field.type)) for field in kind]
        return lambda value: f"{{{','.join(f'{q}:{to(value[n])}' for n, q, to in fields if value[n] is not None)}}}"
    if pa.types.is_decimal(kind):
        return str
    if pa.types.is_binary(kind):
        return lambda value: _quote(base64.b64encode(value).decode())
    if pa.types.is_floating(kind):
        return lambda value: json.dumps(value) if isfinite(value) else _quote(_not_finite(value))
    if pa.types.is_temporal(kind):
        return lambda value: _quote(_time(value))
    return _quote


def _or_null(change: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "null" if value is None else change(value)


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _to_text(kind: pa.DataType) -> Callable[[Any], str]:
    """Return how values of a column are written in CSV. Raises ``SchemaError`` if they cannot be."""
    import pyarrow as pa

    if pa.types.is_nested(kind):
        raise SchemaError(f"CSV files have no column type for {kind}. Use another format.")
    if pa.types.is_string(kind):
        return _quoted
    if pa.types.is_boolean(kind):
        return lambda value: str(value).lower()
    if pa.types.is_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_floating(kind):
        return lambda value: repr(value) if isfinite(value) else _not_finite(value)
    return _time if pa.types.is_temporal(kind) else str


def _quoted(text: str) -> str:
    if text and not _QUOTED & set(text) and text == text.strip():
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _key(value: Any) -> str:
    return _time(value) if isinstance(value, date) else str(value)


def _time(value: date) -> str:
    return value.isoformat(timespec="microseconds") if isinstance(value, datetime) else value.isoformat()


def _not_finite(value: float) -> str:
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
