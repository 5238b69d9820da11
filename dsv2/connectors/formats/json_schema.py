"""JSON, with or without a JSON Schema in a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property, partial
from importlib import import_module
from types import FunctionType, NoneType, UnionType
from typing import Any, Generic, Union, get_args, get_origin
from uuid import UUID

import msgspec

from dsv2.base.columnar import Columnar
from dsv2.base.type_variables import T_co, T_contra
from dsv2.connectors.formats.encoder import PreparedEncoder, with_fast_path
from dsv2.connectors.formats.error import FormatError, reason_of, shown
from dsv2.connectors.formats.json_reader import JsonReader
from dsv2.connectors.formats.plain_values import plain
from dsv2.connectors.formats.record_classes import alternatives, fields_of, is_record_class
from dsv2.connectors.formats.registry import SchemaRegistry, Subject, WrittenSchema
from dsv2.connectors.formats.wire import HEADER_BYTES, header, schema_id_of
from dsv2.errors import ConfigurationError
from dsv2.model.record_batch import RecordBatch

_CONDITIONS: Mapping[Any, str] = {  # under which values are read as they were
    int: "type({0}) is int",
    float: "type({0}) is float and {0} - {0} == 0",  # not infinite or NaN
    str: "type({0}) is str",
    bool: "type({0}) is bool",
    NoneType: "{0} is None",
    bytes: "type({0}) is bytes",
    Decimal: "type({0}) is Decimal",
    UUID: "type({0}) is UUID",
    date: "type({0}) is date",
    datetime: "type({0}) is datetime and ({0}.tzinfo is None or {0}.tzinfo is UTC)",
    time: "type({0}) is time and {0}.tzinfo is None",
    list[int]: "type({0}) is list and {{int}}.issuperset(map(type, {0}))",
    list[str]: "type({0}) is list and {{str}}.issuperset(map(type, {0}))",
}


def json_encoder(record_type: Any, read: Callable[[bytes], Any]) -> Callable[[Any], bytes]:
    """Return the function that encodes records of ``record_type``. It raises ``FormatError``.

    Args:
        record_type: A record class, or another type.
        read: Decodes what is written. A record is refused if the result is not equal to it.
    """
    dumps = msgspec.json.Encoder(
        enc_hook=_plain,
        decimal_format="string",
        uuid_format="canonical",
        # The order of sets depends on the hash seed.
        order="deterministic" if _any_class(record_type, lambda kind: issubclass(kind, Set), set()) else None,
    ).encode
    owner, is_record = getattr(record_type, "__qualname__", "record"), is_record_class(record_type)
    is_tuple = is_record and issubclass(record_type, tuple)  # would become an array
    has_equality = not _any_class(record_type, _defines_equality, set())

    def checked(record: Any) -> bytes:
        if is_record and type(record) is not record_type:
            raise FormatError(f"{shown(record)} is a {type(record).__qualname__} and not a {owner}")
        try:
            data = dumps(record._asdict() if is_tuple else record)
        except Exception as error:
            raise FormatError(f"{_refused_part(owner, record, dumps)} cannot be encoded: {reason_of(error)}") from error
        try:
            found = read(data)
        except Exception as error:
            raise FormatError(f"{shown(record)} cannot be encoded, as it could not be read: {error}") from error
        try:
            if has_equality and type(found) is type(record) and found == record:
                return data
        except Exception:  # such as a signalling NaN
            pass
        for place, value, other in _differences(owner, record, found):
            raise FormatError(
                f"{shown(record)} cannot be encoded: {place} is {shown(value, 100)}, but would be read as "
                f"{shown(other, 100)}. Convert it, or change its annotation to a type that keeps it"
            )
        return data

    if not is_record or hasattr(record_type, "__post_init__"):  # which changes values
        return checked
    conditions = {field.name: _conditions(field.hint) for field in fields_of(record_type)}
    return with_fast_path(dumps, checked, record_type, conditions, as_dict=is_tuple)


def _conditions(hint: Any) -> list[str]:
    """The conditions under which a value fits ``hint``; empty if they are not simple."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = {getattr(member, "__supertype__", member) for member in members}  # of a NewType
    return [_CONDITIONS[kind] for kind in kinds] if kinds <= _CONDITIONS.keys() else []


def _plain(value: Any) -> Any:
    """Convert what msgspec does not support."""
    converted = plain(value)
    if converted is value:
        raise TypeError(f"{shown(value, 100)} of the type {type(value).__qualname__} has no JSON")
    return converted


def _parts(record: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(record, Mapping):
        return record.items()
    kind: Any = type(record)
    fields = fields_of(kind) if is_record_class(kind) else ()
    return [(field.name, getattr(record, field.name)) for field in fields]


def _refused_part(name: str, record: Any, dumps: Callable[[Any], bytes]) -> str:
    """The part that cannot be encoded."""
    for part, value in _parts(record):
        try:
            dumps(value)
        except Exception:
            return f"{name}.{part} is {shown(value, 100)}, which"
    return f"{shown(record)}"


def _differences(place: str, value: Any, found: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parts of ``value`` that are not equal in ``found``."""
    if is_record_class(type(value)) and type(found) is type(value):  # which may define another equality
        for name, part in _parts(value):
            yield from _differences(f"{place}.{name}", part, getattr(found, name))
    elif isinstance(value, dict) and isinstance(found, dict) and value.keys() == found.keys():
        for key, part in value.items():
            yield from _differences(f"{place}[{key!r}]", part, found[key])
    elif isinstance(value, list | tuple) and type(found) is type(value) and len(found) == len(value):
        for number, (part, other) in enumerate(zip(value, found, strict=True)):
            yield from _differences(f"{place}[{number}]", part, other)
    elif not (type(value) is type(found) and str(value) == str(found)) and value != found:
        yield place, value, found  # NaN of Decimals, and times at the end of daylight saving, are equal as text only


def _any_class(hint: Any, matches: Callable[[type], bool], seen: set[Any]) -> bool:
    """Return whether a class that ``hint`` or the fields of its records name matches."""
    for kind in alternatives(hint):
        origin = get_origin(kind) or kind
        if isinstance(origin, type) and matches(origin):
            return True
        if kind not in seen:
            seen.add(kind)
            inner = [field.hint for field in fields_of(kind)] if is_record_class(kind) else get_args(kind)
            if any(_any_class(part, matches, seen) for part in inner):
                return True
    return False


def _defines_equality(kind: type) -> bool:
    """Return whether records of a class may be equal although their fields differ, or differ although they are."""
    if not is_record_class(kind):
        return False
    equality: object = kind.__eq__
    if not is_dataclass(kind):
        return equality is not tuple.__eq__
    is_generated = isinstance(equality, FunctionType) and equality.__code__.co_filename == "<string>"
    return not is_generated or not all(field.compare and field.init for field in fields(kind))


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
        self.record_type = record_type
        self._registry = registry
        self._known: set[bytes] = set()  # headers
        self._reader = JsonReader("JsonDecoder", record_type)
        self._read = self._reader.read

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
            raise FormatError(f"{str(error) or type(error).__name__} ({self.record_type.__qualname__})") from error
        return record

    def decode_all(self, values: Sequence[bytes], /) -> Sequence[T_co]:
        """Decode many records at once. Raises any exception if they must be decoded one by one."""
        return self._reader.records(self._without_headers(values))

    def decode_columns(
        self, values: Sequence[bytes], timestamps: Sequence[int | None] | None = None, /
    ) -> RecordBatch[T_co]:
        """Decode many records as columns.

        Args:
            values: The bytes of the records.
            timestamps: The event timestamps of the records in ms, if they have some.

        Raises any exception if the records must be rows: of a class whose values columns do not keep, for example.
        """
        if self.why_rows:
            raise FormatError(self.why_rows)
        objects = self._reader.objects(self._without_headers(values))
        batch: RecordBatch[T_co] = import_module("dsv2.arrow.decoded").batch_of(objects, self.record_type, timestamps)
        return batch

    @property
    def why_rows(self) -> str:
        """The reason why records are not decoded to columns. Empty: they are."""
        return why_rows(self.record_type)

    def _without_headers(self, values: Sequence[bytes]) -> Sequence[bytes]:
        if self._registry is None:
            return values
        if not self._known.issuperset(value[:HEADER_BYTES] for value in values):
            raise FormatError("a message has a schema that is not known yet")
        return [value[HEADER_BYTES:] for value in values]

    def __repr__(self) -> str:
        return f"JsonDecoder({self.record_type.__qualname__}, registry={self._registry})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(JsonDecoder, self.record_type, registry=self._registry), ()


def why_rows(record_type: type) -> str:
    """Return why records of a class are not decoded to columns. Empty: they are."""
    if import_module("dsv2.arrow.decoded").keeps_values(record_type):
        return ""
    return f"columns do not keep the values of {record_type.__qualname__}"


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
        JsonReader("JsonEncoder", record_type)
        super().__init__(record_type, subject)
        self._schema = schema if isinstance(schema, str) else json.dumps(schema)

    def _header(self, subject: Subject) -> bytes:
        title = str(json.loads(self._schema).get("title", self._record_type.__qualname__))
        return header(subject.id_of(WrittenSchema(_JSON, self._schema), title))

    @cached_property
    def takes_columns(self) -> bool:
        """True if ``encode_columns`` encodes columns: those of a record class, without a subject."""
        kind: Any = self._record_type
        if self._subject is not None or not is_record_class(kind) or hasattr(kind, "__post_init__"):
            return False
        return all(_conditions(field.hint) for field in fields_of(kind))

    def encode_columns(self, records: Columnar[Any], /) -> Sequence[bytes] | None:
        """Encode columnar records as one by one. None: they must be encoded one by one."""
        kind: Any = records.kind
        names = [field.name for field in fields_of(kind)]
        if not self.takes_columns or kind is not self._record_type:
            return None
        columns = import_module("dsv2.arrow.decoded").finite_columns(records)
        row = msgspec.defstruct("row", names, gc=False)
        return None if columns is None else list(map(msgspec.json.encode, map(row, *columns)))

    def _prepared(self) -> Callable[[T_contra], bytes]:
        return json_encoder(self._record_type, JsonReader("JsonEncoder", self._record_type).read)
