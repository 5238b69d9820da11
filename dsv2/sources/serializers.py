"""Serializers of splits and enumerator states. They are stored as JSON, in offsets that people can read."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Generic, Protocol, TypeAlias, Union, get_args, get_origin, get_type_hints

from dsv2.base.type_variables import T
from dsv2.errors import ConfigurationError, CorruptDataError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

_PLAIN = (NoneType, bool, int, float, str)


class Serializer(Protocol[T]):
    """Converts values to JSON and back. Every later version must read what an earlier version wrote.

    Source: Flink ``SimpleVersionedSerializer``.
    """

    def to_json(self, value: T, /) -> JsonValue:
        """Convert ``value`` to a value that ``json.dumps`` accepts."""

    def from_json(self, json: JsonValue, /) -> T:
        """Restore a value from the result of ``to_json``. Raises ``CorruptDataError`` for anything else."""


class DataclassSerializer(Generic[T]):
    """Serializes dataclasses whose fields are None, bool, int, float, str, homogeneous tuples, or such dataclasses.

    A missing field gets its default when it is read, so new fields with defaults may be added to the dataclass.

    Args:
        kind: The dataclass.

    Raises:
        ConfigurationError: The class is not a dataclass, or has a field of another type.
    """

    def __init__(self, kind: type[T]) -> None:
        _check(kind)
        self._kind = kind

    def to_json(self, value: T, /) -> JsonValue:
        """Return the fields by name."""
        return _to_json(value)

    def from_json(self, json: JsonValue, /) -> T:
        """Create an object from its fields. Raises ``CorruptDataError`` if they do not match the class."""
        try:
            made: T = _from_json(self._kind, json)
        except (TypeError, ValueError) as error:
            raise CorruptDataError(f"{json} is not a {self._kind.__qualname__}: {error}.") from error
        return made


def _check(kind: Any) -> None:
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ConfigurationError(f"DataclassSerializer requires a dataclass, got {kind!r}.")
    hints = _hints(kind)
    for field in dataclasses.fields(kind):
        _check_field(f"Field {field.name!r} of {kind.__qualname__}", hints[field.name])


@lru_cache(maxsize=1_000)  # sources may create a serializer for each micro-batch
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _check_field(what: str, form: Any) -> None:
    composed = [member for member in _members(form) if member not in _PLAIN]
    for member in composed:
        if _is_tuple(member):
            _check_field(what, get_args(member)[0])
        elif dataclasses.is_dataclass(member):
            _check(member)
        else:
            composed = [member] * 2
    if len(composed) > 1:
        raise ConfigurationError(
            f"{what} is {form}, which cannot be restored from JSON. Use None, bool, int, float, str, homogeneous "
            f"tuples (tuple[int, ...]) and dataclasses, or write a custom serializer."
        )


def _members(form: Any) -> tuple[Any, ...]:
    return get_args(form) if get_origin(form) in (Union, UnionType) else (form,)


def _is_tuple(form: Any) -> bool:
    return get_origin(form) is tuple and get_args(form)[1:] == (Ellipsis,)


def _to_json(value: Any) -> JsonValue:
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    plain: JsonValue = value
    return plain


def _from_json(form: Any, json: JsonValue) -> Any:
    members = _members(form)
    if isinstance(json, list):
        (item_form,) = (get_args(member)[0] for member in members if _is_tuple(member))
        return tuple(_from_json(item_form, item) for item in json)
    if isinstance(json, dict):
        (kind,) = (member for member in members if dataclasses.is_dataclass(member))
        return _from_fields(kind, json)
    if type(json) not in members and not (type(json) is int and float in members):
        raise ValueError(f"{json!r} is not {form}")
    return json


def _from_fields(kind: Any, json: dict[str, JsonValue]) -> Any:
    hints = _hints(kind)
    if unknown := json.keys() - hints.keys():
        raise ValueError(f"there is no field {', '.join(sorted(unknown))}")
    return kind(**{name: _from_json(hints[name], value) for name, value in json.items()})
