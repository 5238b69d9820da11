"""Protobuf: ``pip install "dsv2[protobuf]"``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from dsv2.checks.client_library import require_client_library
from dsv2.connectors.formats.encoder import PreparedEncoder
from dsv2.connectors.formats.error import FormatError, reason_of, shown
from dsv2.connectors.formats.registry import ImportedSchema, SchemaRegistry, Subject, WrittenSchema
from dsv2.connectors.formats.wire import message_header, message_indexes, schema_id_of
from dsv2.errors import ConfigurationError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.message import Message


M = TypeVar("M", bound="Message")
M_co = TypeVar("M_co", bound="Message", covariant=True)
M_contra = TypeVar("M_contra", bound="Message", contravariant=True)

_PROTOBUF = "PROTOBUF"
_NO_HEADER = b"\xff"  # headers begin with a zero byte
_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")  # imports that every registry has


class ProtobufDecoder(Generic[M_co]):
    """Decodes messages of a class that ``protoc`` generated: ``values(ProtobufDecoder(Order, registry=registry))``.

    With a registry, each message names the schema with which it was written (Confluent's wire format); the decoder
    checks that it is a schema of this message. Without one, all bytes are messages of the class. Fields are matched by
    number, and those that the class does not have are kept as unknown fields.

    The job has to register the class: ``env.register_type(Order, take_apart=Order.SerializeToString,
    build=Order.FromString)``.

    Args:
        message_type: The generated class.
        registry: Where to find the schemas of the messages. None: messages have none.

    Raises:
        ConfigurationError: ``message_type`` is not a generated class, or a library is not installed.
    """

    def __init__(self, message_type: type[M_co], *, registry: SchemaRegistry | None = None) -> None:
        _check("ProtobufDecoder", message_type)
        self._message_type = message_type
        self._registry = registry
        self._requires = _any_field(_descriptor_of(message_type), lambda field: field.is_required, set())
        self._checked: set[bytes] = set()  # headers
        self._last = _NO_HEADER

    def __call__(self, data: bytes, /) -> M_co:
        """Decode one message.

        Raises:
            FormatError: The bytes or their schema do not match.
            JobError: The registry cannot be reached.
        """
        if self._registry is None:
            begin = 0
        elif data.startswith(self._last):  # no header begins with another one
            begin = len(self._last)
        else:
            begin = self._begin(self._registry, data)
        try:
            message: Any = self._message_type.FromString(data[begin:])
            if self._requires and not message.IsInitialized():  # Python's parser accepts it, unlike Java's
                raise ValueError(f"required fields are missing: {', '.join(message.FindInitializationErrors())}")
            return cast("M_co", message)
        except Exception as error:
            where = "" if self._registry is None else f", schema {schema_id_of(data)}"
            name = self._message_type.DESCRIPTOR.full_name
            raise FormatError(f"{reason_of(error)} ({name}{where})") from error

    def __repr__(self) -> str:
        return f"ProtobufDecoder({self._message_type.__qualname__}, registry={self._registry})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_checked": set(), "_last": _NO_HEADER}

    def _begin(self, registry: SchemaRegistry, data: bytes) -> int:
        """Return where the message begins, after the header of ``data``, which is checked when it is new."""
        schema_id = schema_id_of(data)
        indexes, begin = message_indexes(data)
        if data[:begin] not in self._checked:
            self._check_name(registry, schema_id, indexes)
            self._checked.add(data[:begin])
        self._last = data[:begin]
        return begin

    def _check_name(self, registry: SchemaRegistry, schema_id: int, indexes: tuple[int, ...]) -> None:
        descriptor = _descriptor_of(self._message_type)
        schema = registry.client.schema(schema_id, _PROTOBUF)
        name = _message_name(schema.text, indexes)
        if name is None:  # the registry returns source text
            is_same, name = list(indexes) == _indexes_of(descriptor), f"the one with the indexes {list(indexes)}"
        else:
            is_same = name == descriptor.full_name
        if not is_same:
            raise FormatError(f"the message is {name} and not {descriptor.full_name} (schema {schema_id})")


class ProtobufEncoder(PreparedEncoder[M_contra], Generic[M_contra]):
    """Encodes messages of a generated class.

    ``KafkaSink(servers, "orders", ProtobufEncoder(Order, subject=registry.subject("orders")))``. With a subject, a
    message begins with the id of the schema in the registry (Confluent's wire format), which a worker process looks up
    once. Without one, it is the bytes of the message only. Files that the schema imports have the subjects of their
    names.

    Args:
        message_type: The generated class.
        subject: Where the registry has the schema: ``registry.subject(topic)``. None: there is no registry.

    Raises:
        ConfigurationError: ``message_type`` is not a generated class, or a library is not installed.
    """

    def __init__(self, message_type: type[M_contra], *, subject: Subject | None = None) -> None:
        _check("ProtobufEncoder", message_type)
        super().__init__(message_type, subject)

    def _header(self, subject: Subject) -> bytes:
        descriptor = _descriptor_of(self._record_type)
        schema = WrittenSchema(_PROTOBUF, _text_of(descriptor.file), _references(subject, descriptor.file))
        return message_header(subject.id_of(schema, descriptor.full_name), _indexes_of(descriptor))

    def _prepared(self) -> Callable[[M_contra], bytes]:
        kind, serialize = self._record_type, self._record_type.SerializeToString
        if _any_field(_descriptor_of(kind), _is_map, set()):  # whose order depends on the process
            serialize = partial(serialize, deterministic=True)

        def encode(record: M_contra) -> bytes:
            if type(record) is not kind:
                raise FormatError(f"{shown(record)} is a {type(record).__qualname__} and not a {kind.__qualname__}")
            try:
                return serialize(record)
            except Exception as error:
                raise FormatError(f"{shown(record)} cannot be encoded: {error}") from error

        return encode


def _check(user: str, message_type: object) -> None:
    require_client_library("google.protobuf", "protobuf", user)
    from google.protobuf.message import Message

    if not (isinstance(message_type, type) and issubclass(message_type, Message)):
        raise ConfigurationError(f"{user} requires a class that protoc generated, not {message_type!r}.")


def _descriptor_of(message_type: type[Message]) -> Descriptor:
    descriptor: Any = message_type.DESCRIPTOR  # which has one of two classes with the same interface
    return cast("Descriptor", descriptor)


def _any_field(descriptor: Descriptor, matches: Callable[[FieldDescriptor], bool], seen: set[str]) -> bool:
    """Return whether a field of a message, or of messages within it, matches."""
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    return any(
        matches(field) or (field.message_type is not None and _any_field(field.message_type, matches, seen))
        for field in descriptor.fields
    )


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _references(subject: Subject, file: FileDescriptor) -> tuple[ImportedSchema, ...]:
    """Return the files that ``file`` imports, which the registry has or gets."""
    found = []
    for imported in file.dependencies:
        if not imported.name.startswith(_BUILT_IN):
            schema = WrittenSchema(_PROTOBUF, _text_of(imported), _references(subject, imported))
            version = subject.registry.client.version_of(imported.name, schema, register=subject.auto_register)
            found.append(ImportedSchema(imported.name, imported.name, version))
    return tuple(found)


def _text_of(file: FileDescriptor) -> str:
    return base64.b64encode(file.serialized_pb).decode()


def _indexes_of(descriptor: Descriptor) -> list[int]:
    """Return the place of a message in its file, from the outermost message."""
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_indexes_of(outer), [nested.name for nested in outer.nested_types].index(descriptor.name)]


def _message_name(text: str, indexes: tuple[int, ...]) -> str | None:
    """Return the full name of a message of a schema; None if the schema is source text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    names, messages = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise FormatError(f"the schema has no message with the indexes {list(indexes)}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)
