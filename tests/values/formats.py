"""Ways through the message formats: an encoder, and the decoder of the same class."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from google.protobuf.wrappers_pb2 import BoolValue, BytesValue, DoubleValue, Int64Value, StringValue

from dsv2.connectors.formats import (
    AvroDecoder,
    AvroEncoder,
    FormatError,
    JsonDecoder,
    JsonEncoder,
    ProtobufDecoder,
    ProtobufEncoder,
)
from tests.values.awkward import Color, annotation_at, holder_of, value_at
from tests.values.ways import NotSentError, Way, by_position, of_one_type

_AVRO: dict[str, Any] = {
    str(annotation): schema
    for annotation, schema in (
        (str, "string"),
        (int, "long"),
        (bool, "boolean"),
        (float, "double"),
        (bytes, "bytes"),
        (bytearray, "bytes"),
        (Decimal, {"type": "bytes", "logicalType": "decimal", "precision": 76, "scale": 26}),
        (datetime, {"type": "long", "logicalType": "timestamp-micros"}),
        (date, {"type": "int", "logicalType": "date"}),
        (time, {"type": "long", "logicalType": "time-micros"}),
        (UUID, {"type": "string", "logicalType": "uuid"}),
        (str | None, ["null", "string"]),
        (int | None, ["null", "long"]),
        (float | None, ["null", "double"]),
        (datetime | None, ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
        (Color, {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}),
        (list[int], {"type": "array", "items": "long"}),
        (list[int | None], {"type": "array", "items": ["null", "long"]}),
        (list[list[str]], {"type": "array", "items": {"type": "array", "items": "string"}}),
        (dict[str, int], {"type": "map", "values": "long"}),
    )
}
_LOCAL_AVRO = {**_AVRO, str(datetime): {"type": "long", "logicalType": "local-timestamp-micros"}}
_PROTOBUF: dict[Any, Any] = {
    str: StringValue, int: Int64Value, bool: BoolValue, float: DoubleValue, bytes: BytesValue,
}  # fmt: skip


def formats() -> list[Way]:
    """The ways through formats, without a broker."""
    return [
        Way("Avro", partial(_through, partial(_avro, tuple(_AVRO.items()))), of_one_type),
        Way("Avro with local times", partial(_through, partial(_avro, tuple(_LOCAL_AVRO.items()))), of_one_type),
        Way("JSON messages", partial(_through, _json), of_one_type),
        Way("Protobuf", _protobuf, of_one_type),
    ]


def _through(
    coder: Callable[[Any], tuple[Callable[[Any], bytes], Callable[[bytes], Any]]], positions: Sequence[int]
) -> Mapping[int, Any]:
    annotation = annotation_at(positions[0])
    encode, decode = coder(annotation)
    kind = holder_of(annotation)
    written = [encode(kind(position, value_at(position))) for position in positions]
    return by_position(_read(decode, data) for data in written)


def _read(decode: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return decode(data)
    except FormatError as error:
        raise AssertionError(f"what was written cannot be read: {error}") from error


def _avro(schemas: Any, annotation: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    schema = dict(schemas).get(str(annotation))
    if schema is None:
        raise NotSentError(f"Avro has no type for {annotation}")
    fields = [{"name": "position", "type": "long"}, {"name": "value", "type": schema}]
    text = json.dumps({"type": "record", "name": "Holder", "fields": fields})
    kind = holder_of(annotation)
    return AvroEncoder(kind, text), AvroDecoder(kind, schema=text)


def _json(annotation: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    kind = holder_of(annotation)
    return JsonEncoder(kind), JsonDecoder(kind)


def _protobuf(positions: Sequence[int]) -> Mapping[int, Any]:
    received = {}
    for position in positions:
        annotation, value = annotation_at(position), value_at(position)
        if type(value) is not annotation or annotation not in _PROTOBUF:
            raise NotSentError(f"There is no message with a field of type {annotation}.")
        kind = _PROTOBUF[annotation]
        try:
            message = kind(value=value)
        except (TypeError, ValueError) as error:  # Protobuf itself refuses the value
            raise NotSentError(f"Protobuf itself refuses it: {error}") from error
        received[position] = ProtobufDecoder(kind)(ProtobufEncoder(kind)(message)).value
    return received
