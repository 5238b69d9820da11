"""Encodes Arrow tables as the files of a ``FileSink``. Both runtimes write these lines of JSON and CSV."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from importlib import import_module
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from dsv2.connectors.files.sink_tables import table_schema
from dsv2.errors import SchemaError
from dsv2.file_log.schema import check_columns
from dsv2.model.record_batch import RecordBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from dsv2.connectors.files.record_writer import RecordWriter


_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^")  # as Spark escapes them
_UNQUOTED = re.compile(r'[^",\\\s\ufeff](?:[^",\n\r\\]*[^",\\\s])?')


def check_writable(schema: dict[str, Any], format: str, partition_by: Sequence[str]) -> None:
    """Check that files of a format can have the columns of ``schema``. Raises ``SchemaError``."""
    check_columns(schema, partition_by)
    lines(table_schema(schema).empty_table(), format)


def table_of(records: Sequence[Any], schema: dict[str, Any], sink: str) -> pa.Table:
    """Convert records to a table of ``schema``. Raises ``SchemaError``, naming the first record that does not fit."""
    import pyarrow as pa

    return pa.Table.from_batches([writer_of(schema, sink).write(records)])


def table_of_batches(batches: Sequence[RecordBatch[Any]], schema: dict[str, Any], sink: str) -> pa.Table:
    """As ``table_of``, without conversion if all records are columnar and fit the schema."""
    if all(batch.is_columnar for batch in batches):
        columns = import_module("dsv2.arrow.sink_columns")  # a room above, which columnar records have loaded
        table: pa.Table | None = columns.table_of_columns(batches, schema, table_schema(schema))
        if table is not None:
            return table
    return table_of([record for batch in batches for record in batch.rows()], schema, sink)


def writer_of(schema: dict[str, Any], sink: str) -> RecordWriter:
    """Return what converts records to batches of ``schema``."""
    from dsv2.connectors.files.record_writer import RecordWriter  # which imports Arrow

    return RecordWriter(schema, table_schema(schema), sink)


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
        folder = "/".join(_folder_of(name, value, sink) for name, value in zip(columns, values, strict=True))
        indices.setdefault(folder, []).append(number)
    rest = table.drop_columns(list(columns))
    return {folder: rest.take(pa.array(found)) for folder, found in indices.items()}


def check_folder_names(rows: pa.RecordBatch, columns: Sequence[str], sink: str) -> None:
    """Raise ``SchemaError`` if a value of ``columns`` cannot be the name of a folder."""
    for column in columns:
        for value in rows.column(column).unique().to_pylist():
            _folder_of(column, value, sink)


def _folder_of(column: str, value: Any, sink: str) -> str:
    """Return the name of the folder for a value of a partition column. Raises ``SchemaError`` if it cannot have one."""
    if value in ("", _NULL_FOLDER):
        raise SchemaError(
            f"{sink}: a record has an empty string, or {_NULL_FOLDER!r}, in the column {column!r} of "
            f"partition_by. Readers could not distinguish it from None. Map it to another value."
        )
    text = _NULL_FOLDER if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if "\0" in text:
        raise SchemaError(
            f"{sink}: a record has {text!r:.100} in the column {column!r} of partition_by. The name of a folder cannot "
            f"contain NUL. Map it to another value."
        )
    return f"{_escaped(column)}={_escaped(text)}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED or char < " " else char for char in text)


def encoded(table: pa.Table, format: str) -> bytes:
    """Encode ``table`` as one file."""
    if format == "parquet":
        return _parquet(table)
    return "".join(f"{line}\n" for line in lines(table, format)).encode()


def lines(table: pa.Table, format: str) -> list[str]:
    """Return the rows of ``table`` as lines of JSON or CSV, without their ends; none for Parquet.

    Raises:
        SchemaError: A column cannot be written in this format.
    """
    return [] if format == "parquet" else _csv(table) if format == "csv" else _json(table)


def joined(files: Sequence[bytes], format: str) -> tuple[bytes, tuple[int, ...]]:
    """Join files of one schema to one. Also returns the length of each: rows for Parquet, else bytes."""
    if format != "parquet":
        return b"".join(files), tuple(map(len, files))
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Without threads: one of Arrow that still refers to ``data`` when Python ends would abort the process.
    opened = [pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us") for data in files]
    tables = [file.read(use_threads=False) for file in opened]
    return _parquet(pa.concat_tables(tables)), tuple(table.num_rows for table in tables)


def _parquet(table: pa.Table) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = pa.BufferOutputStream()
    pq.write_table(table, target, compression="snappy", coerce_timestamps="us")
    return bytes(target.getvalue())


def _json(table: pa.Table) -> list[str]:
    columns = [(_quote(field.name), _to_json(field.type)) for field in table.schema]
    found = []
    for row in _rows(table):
        filled = [f"{name}:{to(value)}" for (name, to), value in zip(columns, row, strict=True) if value is not None]
        found.append(f"{{{','.join(filled)}}}")
    return found


def _csv(table: pa.Table) -> list[str]:
    changes = [_to_csv(field.type) for field in table.schema]
    return [
        ",".join(["" if value is None else change(value) for change, value in zip(changes, values, strict=True)])
        for values in _rows(table)
    ]


def _rows(table: pa.Table) -> Iterator[Sequence[Any]]:
    return zip(*map(_python_values, table.columns, table.column_names), strict=True)


def _python_values(column: pa.ChunkedArray, name: str) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise SchemaError(f"Column {name!r} has a value of {column.type} that Python does not have: {error}") from error
    return values


def _to_json(kind: pa.DataType) -> Callable[[Any], str]:
    """Return how values of a column are written in JSON."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        element = _or_null(_to_json(kind.value_type))
        return lambda values: f"[{','.join(map(element, values))}]"
    if pa.types.is_map(kind):
        key, item = _to_text(kind.key_type), _or_null(_to_json(kind.item_type))
        return lambda pairs: f"{{{','.join(f'{_quote(key(name))}:{item(value)}' for name, value in pairs)}}}"
    if pa.types.is_struct(kind):
        fields = [(field.name, _quote(field.name), _to_json(field.type)) for field in kind]
        return lambda value: f"{{{','.join(f'{q}:{to(value[n])}' for n, q, to in fields if value[n] is not None)}}}"
    text = _to_text(kind)
    if pa.types.is_floating(kind):
        return lambda value: text(value) if isfinite(value) else _quote(text(value))
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_temporal(kind):
        return lambda value: _quote(text(value))
    return text


def _or_null(change: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "null" if value is None else change(value)


def _quote(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _to_csv(kind: pa.DataType) -> Callable[[Any], str]:
    """Return how values of a column are written in CSV. An empty value is null, so other empty ones are in quotes."""
    import pyarrow as pa

    text = _to_text(kind)
    return (lambda value: _quoted(text(value))) if pa.types.is_string(kind) or pa.types.is_binary(kind) else text


def _quoted(text: str) -> str:
    if _UNQUOTED.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _to_text(kind: pa.DataType) -> Callable[[Any], str]:
    """Return how values of a column are written as text. Raises ``SchemaError`` if they cannot be."""
    import pyarrow as pa

    if pa.types.is_nested(kind):
        raise SchemaError(f"Neither CSV files nor keys of maps in JSON can have the type {kind}. Use another format.")
    if pa.types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if pa.types.is_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_floating(kind):
        return lambda value: repr(value) if isfinite(value) else _not_finite(value)
    if pa.types.is_decimal(kind):
        return lambda value: format(value, "f")
    return _time if pa.types.is_temporal(kind) else str


def _time(value: date) -> str:
    return value.isoformat(timespec="microseconds") if isinstance(value, datetime) else value.isoformat()


def _not_finite(value: float) -> str:
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
