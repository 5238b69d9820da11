"""JSON, with or without a JSON Schema in a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Generic

import msgspec

from dsv2.base.type_variables import T_co, T_contra
from dsv2.connectors.formats.encoder import PreparedEncoder
from dsv2.connectors.formats.error import FormatError
from dsv2.connectors.formats.json_values import json_encoder
from dsv2.connectors.formats.record_classes import alternatives, fields_of, is_record_class
from dsv2.connectors.formats.registry import SchemaRegistry, Subject, WrittenSchema
from dsv2.connectors.formats.wire import HEADER_BYTES, header, schema_id_of
from dsv2.errors import ConfigurationError

_JSON = "JSON"


class JsonDecoder(Generic[T_co]):
    """Decodes JSON: ``values(JsonDecoder(Order))``.

    Values are compared with the annotations of the class, and not with a JSON Schema: other fields are dropped, a field
    with another type is an error. With a registry, messages begin with the id of their schema (Confluent's wire
    format), which must be a JSON Schema.

    Args:
        record_type: A dataclass or NamedTuple class, ``dict``, or any other type that msgspec supports.
        registry: Where to find the schemas of the messages. None: messages have none.

    Raises:
        ConfigurationError: ``record_type`` is not supported.
    """

    def __init__(self, record_type: type[T_co], *, registry: SchemaRegistry | None = None) -> None:
        self._record_type = record_type
        self._registry = registry
        self._known: set[bytes] = set()  # headers
        self._read = _reader("JsonDecoder", record_type)

    def __call__(self, data: bytes, /) -> T_co:
        """Decode one record.

        Raises:
            FormatError: The bytes do not match the class.
            JobError: The registry cannot be reached.
        """
        if self._registry is not None:
            first, data = data[:HEADER_BYTES], data[HEADER_BYTES:]
            if first not in self._known:
                self._registry.client.schema(schema_id_of(first), _JSON)
                self._known.add(first)
        try:
            record: T_co = self._read(data)
        except Exception as error:
            raise FormatError(f"{str(error) or type(error).__name__} ({self._record_type.__qualname__})") from error
        return record

    def __repr__(self) -> str:
        return f"JsonDecoder({self._record_type.__qualname__}, registry={self._registry})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(JsonDecoder, self._record_type, registry=self._registry), ()


class JsonEncoder(PreparedEncoder[T_contra], Generic[T_contra]):
    """Encodes JSON. With a subject, a message begins with the id of its JSON Schema in the registry.

    Records are not compared with the JSON Schema.

    Args:
        record_type: A dataclass or NamedTuple class, ``dict``, or any other type that msgspec supports.
        schema: The JSON Schema, as JSON or parsed JSON. Required with a subject. ``title`` is the name of the record.
        subject: Where the registry has the schema: ``registry.subject(topic)``. None: there is no registry.

    Raises:
        ConfigurationError: ``record_type`` is not supported, or there is only one of ``schema`` and ``subject``.
    """

    def __init__(
        self,
        record_type: type[T_contra],
        schema: str | Mapping[str, Any] | None = None,
        *,
        subject: Subject | None = None,
    ) -> None:
        if (schema is None) != (subject is None):
            raise ConfigurationError("JsonEncoder requires both a schema and a subject, or neither.")
        _reader("JsonEncoder", record_type)
        super().__init__(record_type, subject)
        self._schema = schema if isinstance(schema, str) else json.dumps(schema)

    def _header(self, subject: Subject) -> bytes:
        title = str(json.loads(self._schema).get("title", self._record_type.__qualname__))
        return header(subject.id_of(WrittenSchema(_JSON, self._schema), title))

    def _prepared(self) -> Callable[[T_contra], bytes]:
        return json_encoder(self._record_type, _reader("JsonEncoder", self._record_type))


def _reader(user: str, record_type: type) -> Callable[[bytes], Any]:
    """Return the function that decodes ``record_type``. msgspec would decode a NamedTuple from an array."""
    _check_nested(user, record_type)
    try:
        if not (is_record_class(record_type) and issubclass(record_type, tuple)):
            return msgspec.json.Decoder(record_type, strict=True).decode
        fields = fields_of(record_type)
        defaults = getattr(record_type, "_field_defaults", {})
        struct = msgspec.defstruct(
            record_type.__name__,
            [(f.name, f.hint) if f.required else (f.name, f.hint, defaults[f.name]) for f in fields],
            kw_only=True,
        )
        read: Callable[[bytes], Any] = msgspec.json.Decoder(struct, strict=True).decode
    except TypeError as error:
        raise ConfigurationError(f"{user}: {record_type.__qualname__} cannot be decoded from JSON: {error}.") from error
    if len(fields) == 1:
        return lambda data: record_type(getattr(read(data), fields[0].name))
    values = attrgetter(*(field.name for field in fields))
    return lambda data: record_type(*values(read(data)))


def _check_nested(user: str, record_type: type, *, seen: frozenset[type] = frozenset()) -> None:
    if not is_record_class(record_type) or record_type in seen:
        return
    for field in fields_of(record_type):
        for kind in alternatives(field.hint):
            if isinstance(kind, type) and issubclass(kind, tuple) and is_record_class(kind):
                raise ConfigurationError(
                    f"{user}: {record_type.__qualname__}.{field.name} is a NamedTuple, which would be an array in "
                    f"JSON. Use a dataclass for nested records."
                )
            if isinstance(kind, type):
                _check_nested(user, kind, seen=seen | {record_type})
