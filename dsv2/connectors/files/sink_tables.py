"""Decodes files of a ``FileSink`` to Arrow."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dsv2.connectors.files.directory import Directory, SourceFile
from dsv2.connectors.files.parquet import batches_of, open_parquet
from dsv2.errors import SchemaError
from dsv2.file_log import FilePart
from dsv2.file_log.description import Description
from dsv2.file_log.names import partition_folder, partition_values

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_AT_ONCE = 4096
_GREATEST_BLOCK = (1 << 31) - 1


def table_schema(schema: dict[str, Any]) -> pa.Schema:
    """Return the Arrow schema for a schema that Spark has written in JSON. Raises ``SchemaError``."""
    import pyarrow as pa

    return pa.schema([pa.field(field["name"], _arrow_type(field["type"])) for field in schema["fields"]])


def read_part(root: Directory, description: Description, part: FilePart) -> Iterator[pa.RecordBatch]:
    """Yield the records of a part in batches of the schema of its file.

    Args:
        root: The folder of the sink.
        description: The files of the sink.
        part: The part.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    import pyarrow as pa

    schema = table_schema(description.schemas[part.file.schema])
    stored = pa.schema([field for field in schema if field.name not in description.partition_by])
    folders = partition_values(partition_folder(part.file.path))
    constant = {name: _parsed(value, schema.field(name).type) for name, value in folders.items()}
    for batch in _READERS[description.format](root.file(part.file.path), part, stored):
        columns = [
            pa.repeat(pa.scalar(constant[field.name], field.type), len(batch))
            if field.name in constant
            else batch.column(field.name).cast(field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _read_parquet(file: SourceFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with open_parquet(file) as opened:
        position = 0
        for group in range(opened.metadata.num_row_groups):
            rows = opened.metadata.row_group(group).num_rows
            if position + rows > part.start and (part.stop is None or position < part.stop):
                for batch in batches_of(file, opened, group, schema.names):
                    begin = max(part.start - position, 0)
                    end = len(batch) if part.stop is None else min(part.stop - position, len(batch))
                    if begin < end:
                        yield batch.slice(begin, end - begin)
                    position += len(batch)
            else:
                position += rows


def _read_json(file: SourceFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    convert = [(field.name, _from_json(field.type)) for field in schema]
    lines = _bytes(file, part).splitlines()
    for start in range(0, len(lines), _ROWS_AT_ONCE):
        rows = [json.loads(line, parse_float=str) for line in lines[start : start + _ROWS_AT_ONCE]]
        columns = [[_or_none(change, row.get(name)) for row in rows] for name, change in convert]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _read_csv(file: SourceFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv as pc

    # A thread of Arrow may still refer to the data when Python ends, so they must not be an object of Python.
    data = pa.BufferOutputStream()
    data.write(_bytes(file, part))
    buffer = data.getvalue()
    texts = pa.schema([field.with_type(pa.string()) if pa.types.is_binary(field.type) else field for field in schema])
    table = pc.read_csv(
        pa.BufferReader(buffer),
        # One block: a value must not be longer than a block.
        pc.ReadOptions(
            use_threads=False,
            column_names=schema.names,
            block_size=min(buffer.size + 1, _GREATEST_BLOCK),
            encoding="utf8",
        ),
        pc.ParseOptions(
            delimiter=",",
            quote_char='"',
            escape_char="\\",
            double_quote=False,
            newlines_in_values=True,
            ignore_empty_lines=False,
        ),
        # An empty value is null; an empty string is written in quotes.
        pc.ConvertOptions(
            column_types=texts,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = [
        pa.chunked_array([_as_bytes(chunk) for chunk in column.chunks], field.type)
        if pa.types.is_binary(field.type)
        else column
        for column, field in zip(table.columns, schema, strict=True)
    ]
    yield from pa.table(columns, schema).to_batches()


def _as_bytes(texts: pa.Array) -> pa.Array:
    import pyarrow as pa

    return pa.array([_or_none(_from_base64, text) for text in texts.to_pylist()], pa.binary())


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_READERS: dict[str, Callable[[SourceFile, FilePart, Any], Iterator[Any]]] = {
    "parquet": _read_parquet,
    "json": _read_json,
    "csv": _read_csv,
}


def _bytes(file: SourceFile, part: FilePart) -> bytes:
    with file.open() as opened:
        opened.seek(part.start)
        return opened.read(-1 if part.stop is None else part.stop - part.start)


def _arrow_type(kind: Any) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, dict):
        if kind["type"] == "array":
            return pa.list_(_arrow_type(kind["elementType"]))
        if kind["type"] == "map":
            return pa.map_(_arrow_type(kind["keyType"]), _arrow_type(kind["valueType"]))
        if kind["type"] == "struct":
            return pa.struct([pa.field(field["name"], _arrow_type(field["type"])) for field in kind["fields"]])
    elif kind.startswith("decimal("):
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    simple = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    if not isinstance(kind, str) or kind not in simple:
        raise SchemaError(f"A column has the type {kind}, which only Spark writes and reads, in Parquet files.")
    return simple[kind]


def _parsed(value: str | None, kind: pa.DataType) -> Any:
    """Return the value of a partition column from the name of its folder."""
    import pyarrow as pa

    if value is None or pa.types.is_string(kind):
        return value
    if pa.types.is_boolean(kind):
        return value == "true"
    return date.fromisoformat(value) if pa.types.is_date(kind) else int(value)


def _or_none(change: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else change(value)


def _from_json(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return how values of a column are converted from those that Spark has written in JSON, with floats as text."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        element = _from_json(kind.value_type)
        return lambda values: [_or_none(element, value) for value in values]
    if pa.types.is_map(kind):
        item, key = _from_json(kind.item_type), _from_key(kind.key_type)
        return lambda values: [(key(name), _or_none(item, value)) for name, value in values.items()]
    if pa.types.is_struct(kind):
        fields: Sequence[tuple[str, Any]] = [(field.name, _from_json(field.type)) for field in kind]
        return lambda values: {name: _or_none(change, values.get(name)) for name, change in fields}
    if pa.types.is_decimal(kind):
        return lambda value: Decimal(str(value))
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_date(kind):
        return date.fromisoformat
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat
    return _from_base64 if pa.types.is_binary(kind) else _same


def _from_key(kind: pa.DataType) -> Callable[[str], Any]:
    """Return how keys of maps are converted, which are text in JSON."""
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return "true".__eq__
    return int if pa.types.is_integer(kind) else _from_json(kind)


def _same(value: Any) -> Any:
    return value
