"""Avro: ``pip install "dsv2[avro]"`` (fastavro)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import lru_cache, partial
from io import BytesIO
from typing import Any, Generic, NamedTuple, TypeAlias

from dsv2.base.type_variables import T_co, T_contra
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.formats.avro_types import Schema, reader_of
from dsv2.connectors.formats.avro_writing import taker_of, with_trusted_records
from dsv2.connectors.formats.encoder import PreparedEncoder
from dsv2.connectors.formats.error import FormatError, reason_of, shown
from dsv2.connectors.formats.registry import SchemaRegistry, Subject, WrittenSchema
from dsv2.connectors.formats.wire import HEADER_BYTES, header, schema_id_of
from dsv2.errors import ConfigurationError

_AvroSchema: TypeAlias = str | Mapping[str, Any]

_AVRO = "AVRO"
_WHOLE = "dsv2_whole"
_MOST_DIGITS = 999_999


class AvroDecoder(Generic[T_co]):
    """Decodes Avro: ``values(AvroDecoder(Order, registry=registry))``.

    With a registry, each message names the schema with which it was written (Confluent's wire format). Without one, all
    bytes were written with ``schema`` and have no header.

    Fields are matched with the class by name. Fields that the class does not have are dropped; fields that the schema
    does not have get the defaults of the class. Types are compared when a schema is first seen.

    Args:
        record_type: A dataclass or NamedTuple class, ``dict``, or the type of a value that is not a record, such as
            ``int``.
        registry: Where to find the schemas of the messages. None: messages have none.
        schema: With a registry: the reader schema, to which records are converted by the rules of Avro. None (default):
            the schema of the message. Without a registry: the schema of all messages. As JSON or parsed JSON.

    Raises:
        ConfigurationError: An argument is invalid, the schema does not match the class, or a library is not installed.

    Source: Flink ``ConfluentRegistryAvroDeserializationSchema``, ``AvroDeserializationSchema``.
    """

    def __init__(
        self,
        record_type: type[T_co],
        *,
        registry: SchemaRegistry | None = None,
        schema: _AvroSchema | None = None,
    ) -> None:
        require_client_library("fastavro", "avro", "AvroDecoder")
        if registry is None and schema is None:
            raise ConfigurationError("AvroDecoder requires a registry, a schema, or both.")
        self._record_type = record_type
        self._registry = registry
        self._schema = None if schema is None else _checked("AvroDecoder", record_type, schema, reader_of)
        self._header_bytes = 0 if registry is None else HEADER_BYTES
        self._decoders: dict[bytes, Callable[[bytes], T_co]] = {}  # by header

    def __call__(self, data: bytes, /) -> T_co:
        """Decode one record.

        Raises:
            FormatError: The bytes or their schema do not match.
            JobError: The registry cannot be reached.
        """
        decode = self._decoders.get(data[: self._header_bytes])
        return self._learned(data)(data) if decode is None else decode(data)

    def __repr__(self) -> str:
        return f"AvroDecoder({self._record_type.__qualname__}, registry={self._registry})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_decoders": {}}

    def _learned(self, data: bytes) -> Callable[[bytes], T_co]:
        """Return the function that decodes messages with the header of ``data``."""
        given = None if self._schema is None else _parsed((self._schema,))
        if self._registry is None:
            assert given is not None
            decode = self._decoder(given, None, given.name)
        else:
            schema_id = schema_id_of(data)
            writer = _of_registry(self._registry, schema_id)
            try:
                decode = self._decoder(writer, given, f"schema {schema_id}, {writer.name}")
            except FormatError as error:
                raise FormatError(f"{error} (schema {schema_id})") from error
        self._decoders[data[: self._header_bytes]] = decode
        return decode

    def _decoder(self, writer: ParsedSchema, reader: ParsedSchema | None, name: str) -> Callable[[bytes], T_co]:
        from fastavro import schemaless_reader

        read = partial(
            schemaless_reader, handle_unicode_errors="strict", return_record_name=False, return_named_type=False
        )
        result = writer if reader is None else reader
        wraps = writer.needs_wrapping or result.needs_wrapping
        written = writer.wrapped() if wraps else writer.schema
        wanted = None if reader is None else reader.wrapped() if wraps else reader.schema
        if wanted == written:
            wanted = None  # reading without conversion is faster
        written = keep_all_digits(deepcopy(written))
        build = reader_of(self._record_type, result.schema, result.named) or _unchanged
        skip = self._header_bytes

        def decode(data: bytes) -> T_co:
            stream = BytesIO(data[skip:])
            try:
                value: Any = read(stream, written, wanted)
            except Exception as error:
                raise FormatError(f"{reason_of(error)} ({name})") from error
            if stream.read(1):
                raise FormatError(f"{len(data) - skip - stream.tell() + 1} bytes remain after the record ({name})")
            record: T_co = build(value[_WHOLE] if wraps else value)
            return record

        return decode


class AvroEncoder(PreparedEncoder[T_contra], Generic[T_contra]):
    """Encodes Avro: ``KafkaSink(servers, "orders", AvroEncoder(Order, SCHEMA, subject=registry.subject("orders")))``.

    With a subject, a message begins with the id of the schema in the registry (Confluent's wire format), which a worker
    process looks up once. Without one, it is the bytes of the record only.

    Args:
        record_type: A dataclass or NamedTuple class, ``dict``, or the type of a value that is not a record.
        schema: The schema, as JSON or parsed JSON.
        subject: Where the registry has the schema: ``registry.subject(topic)``. None: there is no registry.

    Raises:
        ConfigurationError: An argument is invalid, the schema does not match the class, or a library is not installed.

    Source: Flink ``ConfluentRegistryAvroSerializationSchema``, ``AvroSerializationSchema``.
    """

    def __init__(self, record_type: type[T_contra], schema: _AvroSchema, *, subject: Subject | None = None) -> None:
        require_client_library("fastavro", "avro", "AvroEncoder")
        super().__init__(record_type, subject)
        self._schema = _checked("AvroEncoder", record_type, schema, taker_of)

    def _header(self, subject: Subject) -> bytes:
        return header(subject.id_of(WrittenSchema(_AVRO, self._schema), _parsed((self._schema,)).name))

    def _prepared(self) -> Callable[[T_contra], bytes]:
        from fastavro import schemaless_writer

        parsed = _parsed((self._schema,))
        wraps, schema = parsed.needs_wrapping, parsed.wrapped() if parsed.needs_wrapping else parsed.schema
        take = taker_of(self._record_type, parsed.schema, parsed.named)
        # ``take`` has checked the names of the fields, and returns the values of unions as pairs.
        write = partial(schemaless_writer, strict=False, strict_allow_default=False, disable_tuple_notation=False)

        def encode(row: Any) -> bytes:
            stream = BytesIO()
            write(stream, schema, row)
            return stream.getvalue()

        def checked(record: T_contra) -> bytes:
            try:
                value = take(record)
                return encode({_WHOLE: value} if wraps else value)
            except Exception as error:
                reason = str(error) if isinstance(error, FormatError) else reason_of(error)
                raise FormatError(f"{shown(record)} does not match the schema {parsed.name}: {reason}") from error

        return with_trusted_records(encode, checked, self._record_type, parsed.schema, parsed.named)


class ParsedSchema(NamedTuple):
    """A parsed schema, with the named schemas to which it refers, and its text."""

    name: str
    schema: Schema
    named: Mapping[str, Any]
    text: str

    @property
    def needs_wrapping(self) -> bool:
        """True if fastavro loses the named schemas, which it keeps in records only."""
        is_record = isinstance(self.schema, dict) and self.schema["type"] == "record"
        return bool(self.named) and not is_record

    def wrapped(self) -> Schema:
        """Return the schema as the only field of a record, which has the same bytes."""
        from fastavro import parse_schema

        record = {"type": "record", "name": _WHOLE, "fields": [{"name": _WHOLE, "type": self.schema}]}
        return parse_schema(record, named_schemas={**self.named})


@lru_cache(maxsize=256)
def _parsed(texts: tuple[str, ...]) -> ParsedSchema:
    """Parse the last of ``texts``, which refers to the others."""
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    schema: Schema = None
    for text in texts:
        schema = parse_schema(json.loads(text), named_schemas=named)
    name = schema.get("name", schema["type"]) if isinstance(schema, dict) else str(schema)
    return ParsedSchema(str(name), schema, named, texts[-1])


def _checked(
    user: str, record_type: type, schema: _AvroSchema, match: Callable[[Any, Schema, Mapping[str, Any]], object]
) -> str:
    """Return ``schema`` as JSON. Raises ``ConfigurationError`` if it is not valid or does not match."""
    parsed = parsed_schema(user, schema)
    try:
        match(record_type, parsed.schema, parsed.named)
    except FormatError as error:
        raise ConfigurationError(f"{user}: {error}.") from error
    return parsed.text


def parsed_schema(user: str, schema: _AvroSchema) -> ParsedSchema:
    """Parse a schema. Raises ``ConfigurationError``, which names ``user``, if it is not valid."""
    try:
        return _parsed((schema if isinstance(schema, str) else json.dumps(schema),))
    except Exception as error:
        raise ConfigurationError(f"{user}: the schema is not valid: {reason_of(error)}.") from error


def keep_all_digits(schema: Schema) -> Schema:
    """Change a parsed schema so that fastavro does not round a decimal with more digits than its precision."""
    if isinstance(schema, list):
        for part in schema:
            keep_all_digits(part)
    elif isinstance(schema, dict):
        if schema.get("logicalType") == "decimal":
            schema["precision"] = _MOST_DIGITS
        for key in ("type", "items", "values", "fields"):
            keep_all_digits(schema.get(key))
        keep_all_digits(list(schema.get("__named_schemas", {}).values()))
    return schema


def _of_registry(registry: SchemaRegistry, schema_id: int) -> ParsedSchema:
    texts = _texts_of(registry, registry.client.schema(schema_id, _AVRO))
    unique = tuple(dict.fromkeys(texts))  # in order
    try:
        return _parsed(unique)
    except Exception as error:
        raise FormatError(f"schema {schema_id} cannot be parsed: {reason_of(error)}") from error


def _texts_of(registry: SchemaRegistry, schema: WrittenSchema) -> Iterator[str]:
    """Yield the text of a schema after those to which it refers."""
    for reference in schema.references:
        yield from _texts_of(registry, registry.client.referenced(reference))
    yield schema.text


def _unchanged(value: Any) -> Any:
    return value
