"""Checks of what JSON encoders write: a record must be read as it was, but msgspec writes NaN as null, for example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from dsv2.connectors.formats.error import FormatError, reason_of, shown
from dsv2.connectors.formats.plain_values import plain
from dsv2.connectors.formats.record_classes import alternatives, fields_of, is_record_class

__all__ = ("json_encoder",)

_SCALARS = (int, float, str, bool, NoneType)  # JSON has them; of floats, only the finite ones


def json_encoder(record_type: Any, read: Callable[[bytes], Any]) -> Callable[[Any], bytes]:
    """Return the function that encodes records of ``record_type``. It raises ``FormatError``.

    Args:
        record_type: A record class, or another type.
        read: Decodes what is written. A record is refused if the result is not equal to it.
    """
    encoder = msgspec.json.Encoder(
        enc_hook=_plain,
        decimal_format="string",
        uuid_format="canonical",
        order="deterministic" if _has_sets(record_type, set()) else None,  # sets depend on the hash seed
    )
    dumps = encoder.encode

    owner = getattr(record_type, "__qualname__", "record")

    def checked(record: Any) -> bytes:
        try:
            data = dumps(_as_dict(record))
        except Exception as error:
            raise FormatError(f"{_refused_part(owner, record, dumps)} cannot be encoded: {reason_of(error)}") from error
        try:
            found = read(data)
        except Exception as error:
            raise FormatError(f"{shown(record)} cannot be encoded, as it could not be read: {error}") from error
        for place, value, other in () if _is_equal(record, found) else _differences(owner, record, found):
            raise FormatError(
                f"{shown(record)} cannot be encoded: {place} is {shown(value, 100)}, but would be read as "
                f"{shown(other, 100)}. Convert it, or change its annotation to a type that keeps it"
            )
        return data

    is_simple = is_record_class(record_type) and not hasattr(record_type, "__post_init__")  # which changes values
    return _fast(record_type, dumps, checked) if is_simple else checked


def _fast(record_type: Any, dumps: Callable[[Any], bytes], checked: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Encode records of scalars without reading them: it suffices to compare their types with the annotations."""
    hints = {field.name: field.hint for field in fields_of(record_type)}
    names, is_tuple, fits = tuple(hints), issubclass(record_type, tuple), _predicate(hints)

    def encode(record: Any) -> bytes:
        if type(record) is not record_type:
            raise FormatError(f"{shown(record)} is a {type(record).__qualname__} and not a {record_type.__qualname__}")
        if not fits(record):
            return checked(record)
        try:
            return dumps(dict(zip(names, record)) if is_tuple else record)  # noqa: B905 (strict is slower)
        except Exception:
            return checked(record)

    return encode


def _predicate(hints: Mapping[str, Any]) -> Callable[[Any], bool]:
    """Return whether each field of a record is a scalar of its type. Compiled: a loop would cost more than encoding."""
    terms = []
    for name, hint in hints.items():
        kinds, value = _scalars_of(hint), f"record.{name}"
        options = [f"type({value}) is {kind.__name__}" for kind in _SCALARS if kind in kinds and kind is not float]
        if float in kinds:
            options.append(f"type({value}) is float and {value} - {value} == 0")  # not for infinities and NaN
        terms.append(f"({' or '.join(options) or False})")
    predicate: Callable[[Any], bool] = eval(f"lambda record: {' and '.join(terms) or True}", {"NoneType": NoneType})
    return predicate


def _scalars_of(hint: Any) -> frozenset[type]:
    """The types of values that fit ``hint``; empty if that depends on the value."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = frozenset(getattr(member, "__supertype__", member) for member in members)  # of a NewType
    return kinds if kinds <= set(_SCALARS) else frozenset()


def _plain(value: Any) -> Any:
    """Convert what msgspec does not support."""
    converted = plain(value)
    if converted is value:
        raise TypeError(f"{shown(value, 100)} of the type {type(value).__qualname__} has no JSON")
    return converted


def _as_dict(record: Any) -> Any:
    as_dict = getattr(record, "_asdict", None)  # a NamedTuple would become an array
    return record if as_dict is None else as_dict()


def _parts(record: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(record, Mapping):
        return record.items()
    fields = fields_of(type(record)) if is_record_class(type(record)) else ()
    return [(field.name, getattr(record, field.name)) for field in fields]


def _refused_part(name: str, record: Any, dumps: Callable[[Any], bytes]) -> str:
    """The part that cannot be encoded."""
    for part, value in _parts(record):
        try:
            dumps(value)
        except Exception:
            return f"{name}.{part} is {shown(value, 100)}, which"
    return f"{shown(record)}"


def _is_equal(value: Any, found: Any) -> bool:
    """Return True if both are equal by their own definition, which suffices if they are not records."""
    try:
        return type(value) is type(found) and not is_record_class(type(value)) and bool(value == found)
    except Exception:  # such as a signalling NaN
        return False


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


def _has_sets(hint: Any, seen: set[Any]) -> bool:
    for kind in alternatives(hint):
        origin = get_origin(kind) or kind
        if isinstance(origin, type) and issubclass(origin, Set):
            return True
        if kind not in seen:
            seen.add(kind)
            inner = [field.hint for field in fields_of(kind)] if is_record_class(kind) else get_args(kind)
            if any(_has_sets(part, seen) for part in inner):
                return True
    return False
