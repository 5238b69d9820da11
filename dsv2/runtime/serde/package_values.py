"""Converters for values of numpy, pandas, Arrow and Spark. A package is only imported for its own values."""

from __future__ import annotations

import re
from datetime import timezone, tzinfo
from importlib import import_module
from struct import unpack_from
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.runtime.serde.values import Converter

# Places of fields in the tables of Arrow's Message.fbs, and members of the union MessageHeader.
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DATA: Final = 1  # of a DictionaryBatch: its RecordBatch
_COMPRESSION: Final = 3  # of a RecordBatch


def is_compressed(metadata: bytes) -> bool:
    """Return whether the body of a message is compressed.

    Args:
        metadata: The flatbuffer of the message, ``pyarrow.ipc.Message.metadata``.

    Raises:
        struct.error: It is not a flatbuffer of a message.
    """
    message = _table_at(metadata, 0)
    place = _field(metadata, message, _HEADER_TYPE)
    kind = metadata[place] if place is not None else 0
    header = _field(metadata, message, _HEADER)
    if header is None or kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return False
    batch = _table_at(metadata, header)
    if kind == _DICTIONARY_BATCH:
        data = _field(metadata, batch, _DATA)
        if data is None:
            return False
        batch = _table_at(metadata, data)
    return _field(metadata, batch, _COMPRESSION) is not None


def _table_at(data: bytes, place: int) -> int:
    """The place of the table to which the offset at ``place`` refers."""
    (offset,) = unpack_from("<I", data, place)
    return place + int(offset)


def _field(data: bytes, table: int, number: int) -> int | None:
    """The place of a field of a table; None if the table does not have it."""
    (to_fields,) = unpack_from("<i", data, table)
    fields = table - to_fields
    (size,) = unpack_from("<H", data, fields)
    if 4 + 2 * number >= size:
        return None
    (offset,) = unpack_from("<H", data, fields + 4 + 2 * number)
    return table + offset if offset else None


Converters: TypeAlias = dict[type, Converter]

_DTYPE = re.compile(r"[<>|=][biufcSUmM]\d+(\[\d*[a-zA-Z]+\])?")


def of_numpy() -> Converters:
    """Return converters for arrays of numbers, times and strings, and for their scalars."""
    np: Any = import_module("numpy")

    def dtype_of(text: Any) -> Any:
        if type(text) is not str or not _DTYPE.fullmatch(text):
            raise CorruptDataError(f"{text!r} is not a supported dtype.")
        return np.dtype(text)

    def text_of(dtype: Any) -> str:
        if not _DTYPE.fullmatch(dtype.str):
            raise SerializationError(
                f"An array of {dtype} cannot be serialized. Use an array of numbers, times or strings."
            )
        return str(dtype.str)

    def with_bytes(value: Any) -> Any:
        # Empty texts have a dtype of no bytes, which frombuffer refuses.
        return value if value.dtype.itemsize else np.asarray(value).astype(f"{value.dtype.kind}1")

    def of_array(value: Any) -> Any:
        value = with_bytes(value)
        return text_of(value.dtype), value.shape, value.tobytes()

    def to_array(parts: Any) -> Any:
        text, shape, data = parts
        return np.frombuffer(data, dtype_of(text)).reshape(shape).copy()

    def of_scalar(value: Any) -> Any:
        value = with_bytes(value)
        return text_of(value.dtype), value.tobytes()

    def to_scalar(parts: Any) -> Any:
        text, data = parts
        (value,) = np.frombuffer(data, dtype_of(text))
        return value

    scalar = Converter("numpy.generic", of_scalar, to_scalar)
    kinds = {np.dtype(code).type for code in np.typecodes["All"] if code not in "OVp"}
    return {
        np.ndarray: Converter("numpy.ndarray", of_array, to_array, mutable=True),
        **dict.fromkeys(sorted(kinds, key=lambda kind: kind.__name__), scalar),
    }


def of_pandas() -> Converters:
    """Return converters for timestamps and durations."""
    pd: Any = import_module("pandas")

    def zone_of(zone: tzinfo | None) -> Any:
        if zone is None or type(zone) in (timezone, ZoneInfo):
            return zone
        name = getattr(zone, "zone", None)  # pytz
        if type(name) is not str:
            raise SerializationError(f"A timestamp in {zone!r} cannot be serialized. Use zoneinfo.ZoneInfo.")
        return name

    def check(number: Any, unit: Any) -> None:
        if type(number) is not int or unit not in ("s", "ms", "us", "ns"):
            raise CorruptDataError("A time must consist of an integer and its unit.")

    def to_timestamp(parts: Any) -> Any:
        number, unit, zone = parts
        check(number, unit)
        if type(zone) is str:
            ZoneInfo(zone)  # pandas would look for files of other names
        return pd.Timestamp(number, unit=unit, tz=zone).as_unit(unit)

    def to_timedelta(parts: Any) -> Any:
        number, unit = parts
        check(number, unit)
        return pd.Timedelta(number, unit=unit).as_unit(unit)

    return {
        pd.Timestamp: Converter("pandas.Timestamp", lambda v: (v._value, v.unit, zone_of(v.tz)), to_timestamp),
        pd.Timedelta: Converter("pandas.Timedelta", lambda v: (v._value, v.unit), to_timedelta),
        type(pd.NaT): Converter("pandas.NaT", lambda v: None, lambda parts: pd.NaT),
        type(pd.NA): Converter("pandas.NA", lambda v: None, lambda parts: pd.NA),
    }


def of_pyarrow() -> Converters:
    """Return converters for tables, record batches, arrays and schemas, as Arrow IPC, which is fully validated."""
    pa: Any = import_module("pyarrow")

    def of_table(value: Any) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema, options=pa.ipc.IpcWriteOptions(compression=None)) as writer:
            writer.write(value)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def opened(data: Any) -> Any:
        for message in pa.ipc.MessageReader.open_stream(_bytes(data)):
            if is_compressed(message.metadata.to_pybytes()):  # it could be larger than the bytes by any factor
                raise CorruptDataError("An Arrow message in a value is compressed.")
        return pa.ipc.open_stream(data)

    def to_table(data: Any) -> Any:
        table = opened(data).read_all()
        table.validate(full=True)
        return table

    def to_batch(data: Any) -> Any:
        (batch,) = list(opened(data))
        batch.validate(full=True)
        return batch

    def of_array(value: Any) -> bytes:
        return of_table(pa.table([value], ["values"]))

    def to_chunked_array(data: Any) -> Any:
        return to_table(data).column(0)

    def to_array(data: Any) -> Any:
        column = to_table(data).column(0)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    arrays = {kind for kind in vars(pa).values() if isinstance(kind, type) and issubclass(kind, pa.Array)}
    return {
        pa.Table: Converter("pyarrow.Table", of_table, to_table),
        pa.RecordBatch: Converter("pyarrow.RecordBatch", of_table, to_batch),
        pa.ChunkedArray: Converter("pyarrow.ChunkedArray", of_array, to_chunked_array),
        pa.Schema: Converter(
            "pyarrow.Schema",
            lambda v: v.serialize().to_pybytes(),
            lambda data: pa.ipc.read_schema(pa.py_buffer(_bytes(data))),
        ),
        **dict.fromkeys(sorted(arrays, key=lambda kind: kind.__name__), Converter("pyarrow.Array", of_array, to_array)),
    }


def of_pyspark() -> Converters:
    """Return the converter for rows."""
    row: Any = import_module("pyspark.sql.types").Row

    def of_row(value: Any) -> Any:
        return tuple(getattr(value, "__fields__", ())), tuple(value)

    def to_row(parts: Any) -> Any:
        if type(parts) is not tuple or any(type(part) is not tuple for part in parts):
            raise CorruptDataError("A row must consist of names and values.")
        names, values = parts
        made = tuple.__new__(row, values)
        if names:
            if any(type(name) is not str for name in names):
                raise CorruptDataError("The field names of a row must be strings.")
            made.__fields__ = list(names)
        return made

    return {row: Converter("pyspark.Row", of_row, to_row, any_parts=True)}


def _bytes(data: Any) -> bytes:
    if type(data) is not bytes:
        raise CorruptDataError("An Arrow message must be bytes.")
    return data
