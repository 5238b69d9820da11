"""Layouts decompose objects of data classes into fields and rebuild them without calling the class."""

from __future__ import annotations

import dataclasses
import inspect
from collections import deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, Flag
from functools import partial
from itertools import repeat
from operator import itemgetter
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Generic, Protocol, cast

from dsv2.errors import CorruptDataError, SerializationError

_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE: created by a class statement or a C module
_WORD = tuple.__itemsize__
_PICKLE_HOOKS = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
_GENERATED = (  # hooks of NamedTuples and frozen dataclasses with slots, which only pickle the fields
    vars(namedtuple("_Sample", "field"))["__getnewargs__"].__code__,
    *(vars(dataclasses)[name].__code__ for name in ("_dataclass_getstate", "_dataclass_setstate")),
)
_DICT = vars(type("_Sample", (), {}))["__dict__"]
_set_item: Any = dict.__setitem__
_MUTABLE_BASES = (list, dict, set)
_VALUE_BASES = (int, float, complex, str, bytes, tuple, frozenset)


def name_of(kind: type) -> str:
    """Return the name of a class in bytes."""
    return f"{kind.__module__}:{kind.__qualname__}"


def shown(kind: type) -> str:
    """Return the name of a class in error messages."""
    return f"{kind.__module__}.{kind.__qualname__}"


class ClassLayout:
    """The layout of a class. ``mutable``: whether the identity of its objects matters."""

    mutable = True

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.name = name_of(kind)
        self._slots = _slots_of(kind)
        self._has_dict = _has_dict(kind)

    def blanks(self, count: int) -> list[Any]:
        """Create objects without attributes."""
        return list(map(object.__new__, repeat(self.kind, count)))

    def attributes(self, value: Any) -> dict[str, Any]:
        """Return all attributes of ``value``."""
        held = dict(vars(value)) if self._has_dict else {}
        for name, slot in self._slots.items():
            try:
                held[name] = slot.__get__(value)
            except AttributeError:
                continue
        return held

    def assign(self, values: Sequence[Any], attributes: Sequence[Mapping[str, Any]]) -> None:
        """Set the attributes of each of ``values``."""
        for value, held in zip(values, attributes, strict=True):
            for name, content in held.items():
                self._assign(value, name, content)

    def _assign(self, value: Any, name: str, content: Any) -> None:
        slot = self._slots.get(name)
        if slot is not None:
            slot.__set__(value, content)
        elif self._has_dict and type(name) is str:
            vars(value)[name] = content
        else:
            raise CorruptDataError(f"{self.name} has no attribute {name!r}.")


class ObjectLayout(ClassLayout):
    """The layout of a class without declared fields: an object is its attributes."""


class RecordLayout(ClassLayout):
    """The layout of a dataclass or NamedTuple: an object is the values of its fields."""

    def __init__(self, kind: type) -> None:
        super().__init__(kind)
        self.is_tuple = issubclass(kind, tuple)
        self.fields, self._defaults = _fields_of(kind)
        self.mutable = not (self.is_tuple or kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]
        self._getters = list(map(itemgetter, range(len(self.fields)) if self.is_tuple else self.fields))
        self._setters = [] if self.is_tuple else [self._setter(name) for name in self.fields]

    def columns(self, values: Sequence[Any]) -> list[list[Any]] | None:
        """Return the values of each field; None if one of ``values`` has other attributes or lacks a field."""
        if self.is_tuple:
            if self._has_dict and any(map(vars, values)):
                return None
            return [list(map(get, values)) for get in self._getters]
        try:
            if not self._has_dict:
                return [list(map(self._slots[name].__get__, values)) for name in self.fields]
            if self._slots:
                return None
            held = list(map(vars, values))
            if set(map(len, held)) != {len(self.fields)}:
                return None
            return [list(map(get, held)) for get in self._getters]
        except (AttributeError, KeyError):
            return None

    def build(self, names: Sequence[str], columns: Sequence[list[Any]]) -> list[Any]:
        """Build objects from the ``columns`` of their fields ``names``. There is at least one column."""
        if self.is_tuple:
            ordered = self._ordered(names, columns)
            return list(map(tuple.__new__, repeat(self.kind), zip(*ordered, strict=True)))
        values = self.blanks(len(columns[0]))
        for setter, column in zip(self._setters, self._ordered(names, columns), strict=True):
            if len(column) != len(values):
                raise CorruptDataError(f"The fields of {self.name} differ in length.")
            deque(setter(values, column), maxlen=0)  # the fastest way to exhaust an iterator
        return values

    def _ordered(self, names: Sequence[str], columns: Sequence[list[Any]]) -> Sequence[list[Any]]:
        """The columns in the order of the fields of the current class, with defaults for new fields."""
        if len(names) != len(columns):
            raise CorruptDataError(f"The fields of {self.name} and their values differ in number.")
        if tuple(names) == self.fields:
            return columns
        found = dict(zip(names, columns, strict=True))
        count = len(columns[0])
        return [found[name] if name in found else self._new_column(name, names, count) for name in self.fields]

    def _new_column(self, name: str, names: Sequence[str], count: int) -> list[Any]:
        default = self._defaults.get(name)
        if default is None:
            raise CorruptDataError(
                f"{self.name} was written with the fields {', '.join(names)}, and now it also has {name!r}, which has "
                f"no default. Add a default."
            )
        return [default() for _ in range(count)]

    def _setter(self, name: str) -> Callable[[list[Any], list[Any]], Iterator[None]]:
        """Return a function that sets a field of many objects to a column of values."""
        if (slot := self._slots.get(name)) is not None:
            return partial(map, slot.__set__)
        if hasattr(type(inspect.getattr_static(self.kind, name, None)), "__set__"):  # a property of that name
            return lambda values, column: map(_set_item, map(vars, values), repeat(name), column)
        return lambda values, column: map(object.__setattr__, values, repeat(name), column)


class SubclassLayout(ClassLayout):
    """The layout of a subclass of a built-in type: an object is a value of that type and attributes."""

    def __init__(self, kind: type, base: Any) -> None:
        super().__init__(kind)
        self.base = base
        self.mutable = base in _MUTABLE_BASES

    def blanks(self, count: int) -> list[Any]:
        return [self.base.__new__(self.kind) for _ in range(count)]

    def plain(self, value: Any) -> Any:
        """Return ``value`` as a value of the built-in type, or as a tuple of members if it is a container."""
        if self.base is dict:
            return tuple(dict.items(value))
        if self.base in _MUTABLE_BASES:
            return tuple(self.base.__iter__(value))
        if self.base in (tuple, frozenset):
            return self.base(self.base.__iter__(value))
        return self.base.__getnewargs__(value)[0] if self.base in (str, bytes) else _plain_number(self.base, value)

    def build(self, plain: Any) -> Any:
        """Build the value without its attributes."""
        if type(plain) is not (tuple if self.mutable else self.base) or not self._are_members(plain):
            raise CorruptDataError(f"{self.name} cannot be built from {type(plain).__qualname__}.")
        value = self.base.__new__(self.kind, *(() if self.mutable else (plain,)))
        if self.mutable:
            self.fill(value, plain)
        return value

    def _are_members(self, plain: Any) -> bool:
        return self.base is not dict or all(type(pair) is tuple and len(pair) == 2 for pair in plain)

    def fill(self, value: Any, members: tuple[Any, ...]) -> None:
        """Add the members to an empty container."""
        (list.extend if self.base is list else self.base.update)(value, members)


class EnumLayout(ClassLayout):
    """The layout of an enumeration: a member is its name, or its number for flags."""

    mutable = False

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__(kind)
        self.is_flag = hasattr(kind, "_boundary_")
        self._members = kind.__members__
        self._combines = self.is_flag and kind._missing_.__func__ is Flag._missing_.__func__  # type: ignore[attr-defined]

    def plain(self, value: Any) -> str | int:
        """Return the name or number of a member."""
        return value._value_ if self._combines else value._name_  # type: ignore[no-any-return]

    def build(self, plain: Any) -> Any:
        """Return the member."""
        if self.is_flag and type(plain) is int and self._combines:
            return self.kind(plain)
        if type(plain) is not str or plain not in self._members:
            raise CorruptDataError(f"{self.name} has no member {plain!r}.")
        return self._members[plain]


def layout_of(kind: type) -> ClassLayout:
    """Return the layout of ``kind``. Raises ``SerializationError`` if it is not a data class."""
    if issubclass(kind, Enum):
        return EnumLayout(kind)
    bases = [base for base in kind.__mro__ if base in _VALUE_BASES or base in _MUTABLE_BASES]
    for owner in kind.__mro__:
        if owner not in (object, Generic, Protocol, *bases):
            _check_owner(kind, owner)
    if len(bases) == 1 and bases[0] is tuple and _is_named_tuple(kind):
        return RecordLayout(kind)
    if bases:
        return SubclassLayout(kind, bases[0])
    _check_size(kind)
    return RecordLayout(kind) if dataclasses.is_dataclass(kind) else ObjectLayout(kind)


def _check_owner(kind: type, owner: type) -> None:
    if not owner.__flags__ & _HEAP_TYPE or owner.__flags__ & _IMMUTABLE_TYPE:
        raise SerializationError(f"{shown(kind)} is not a data class: {shown(owner)} is written in C.")
    own = vars(owner)
    if not isinstance(own.get("__dict__", _DICT), GetSetDescriptorType):
        raise SerializationError(f"{shown(kind)} is not a data class: it hides its attributes.")
    if "__del__" in own:
        raise SerializationError(
            f"{shown(kind)} is not a data class: it has a finalizer, {owner.__qualname__}.__del__."
        )
    for hook in _PICKLE_HOOKS:
        if hook in own and getattr(own[hook], "__code__", None) not in _GENERATED:
            raise SerializationError(
                f"{shown(kind)} defines how it is pickled ({owner.__qualname__}.{hook}), but dsv2 does not use pickle."
            )


def _check_size(kind: type) -> None:
    expected = object.__basicsize__ + _WORD * (
        len(_slots_of(kind)) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    )
    if kind.__basicsize__ != expected:
        raise SerializationError(f"{shown(kind)} is not a data class: it has parts that are written in C.")


def _is_named_tuple(kind: type) -> bool:
    fields = getattr(kind, "_fields", None)
    return isinstance(fields, tuple) and bool(fields) and isinstance(getattr(kind, "_field_defaults", None), dict)


def _fields_of(kind: type) -> tuple[tuple[str, ...], dict[str, Callable[[], Any]]]:
    """The names of the fields, and a factory for each default."""
    if issubclass(kind, tuple):
        named = cast(Any, kind)
        return named._fields, {name: _constant(value) for name, value in named._field_defaults.items()}
    defaults: dict[str, Callable[[], Any]] = {}
    fields = dataclasses.fields(cast(Any, kind))
    for field in fields:
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = _constant(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory
    return tuple(field.name for field in fields), defaults


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _slots_of(kind: type) -> dict[str, MemberDescriptorType]:
    found: dict[str, MemberDescriptorType] = {}
    for owner in reversed(kind.__mro__):
        found.update((name, slot) for name, slot in vars(owner).items() if isinstance(slot, MemberDescriptorType))
    return found


def _has_dict(kind: type) -> bool:
    return any(isinstance(vars(owner).get("__dict__"), GetSetDescriptorType) for owner in kind.__mro__)


def _plain_number(base: type, value: Any) -> Any:
    if base is int:
        return int.__index__(value)
    return float.__float__(value) if base is float else complex(value.real, value.imag)
