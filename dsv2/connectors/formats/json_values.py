"""Checks of what JSON encoders write: a record must be read as it was, but msgspec writes NaN as null, for example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from types import FunctionType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

import msgspec

from dsv2.connectors.formats.encoder import with_fast_path
from dsv2.connectors.formats.error import FormatError, reason_of, shown
from dsv2.connectors.formats.plain_values import plain
from dsv2.connectors.formats.record_classes import alternatives, fields_of, is_record_class

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
