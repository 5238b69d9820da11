"""The fields of record classes, and the parts of type hints."""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from dsv2.errors import ConfigurationError

ANYTHING: Any = object()
"""Among the alternatives of a hint: every value fits."""


class Field(NamedTuple):
    """A field of a record class. ``required``: It has no default."""

    name: str
    hint: Any
    required: bool


def is_record_class(kind: object) -> bool:
    """Return whether ``kind`` is a dataclass or a NamedTuple class."""
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


@lru_cache(maxsize=1024)
def fields_of(kind: type) -> tuple[Field, ...]:
    """Return the fields with which a record of the class ``kind`` is created.

    Raises:
        ConfigurationError: The annotations of the class cannot be evaluated.
    """
    try:
        hints = typing.get_type_hints(kind)
    except Exception as error:
        raise ConfigurationError(
            f"The annotations of {kind.__qualname__} cannot be evaluated: {error}. Define the classes that they name "
            f"in the module, not in a function or for type checkers only."
        ) from error
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        return tuple(
            Field(field.name, hints[field.name], field.default is missing and field.default_factory is missing)
            for field in dataclasses.fields(kind)
            if field.init
        )
    named: Any = kind
    return tuple(Field(name, hints.get(name, Any), name not in named._field_defaults) for name in named._fields)


def alternatives(hint: Any) -> list[Any]:
    """Return the members of a union, or ``hint`` itself; ``ANYTHING`` for what cannot be checked."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return [part for member in get_args(hint) for part in alternatives(member)]
    if origin is Annotated:
        return alternatives(hint.__origin__)
    if hasattr(hint, "__supertype__"):  # a NewType
        return alternatives(hint.__supertype__)
    if hint in (Any, object) or isinstance(hint, TypeVar | str) or origin is typing.Literal:
        return [ANYTHING]
    if hasattr(hint, "__value__"):  # a type alias
        return alternatives(hint.__value__)
    return [types.NoneType if hint is None else hint]
