"""Decodes values without the program that wrote them, and encodes them again.

Bytes name the classes of values and their fields. ``StandIns`` makes a class of that name and kind for each, without
the methods of the real one. For tools that move the state of a job.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.runtime.serde.data_types import L
from dsv2.runtime.serde.layouts import ClassLayout, EnumLayout, ObjectLayout, RecordLayout, SubclassLayout, shown
from dsv2.runtime.serde.values import Converter, converter_named, converter_of

_OF_A_CLASS = ("columns.ArrowRecords",)  # converters that need the fields of the real class


class StandIns:
    """``DataTypes`` that accept every class.

    Objects that a value shares stay shared. Two objects are equal only if they are the same: how the real class
    compares them is unknown, and sets and dicts must keep all their members.
    """

    def __init__(self) -> None:
        self._by_class: dict[type, ClassLayout | Converter] = {}
        self._layouts: dict[tuple[str, type[ClassLayout], bool], ClassLayout] = {}
        self._records: dict[tuple[str, tuple[str, ...], bool], RecordLayout] = {}
        self._converters: dict[str, Converter] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return StandIns, ()

    def layout_of(self, kind: type) -> ClassLayout | Converter:
        """Return how values of ``kind`` are encoded. Raises ``SerializationError`` if ``kind`` is not a stand-in."""
        found = self._by_class.get(kind) or converter_of(kind)
        if found is None:
            raise SerializationError(f"{shown(kind)} is not a class that was read.")
        return found

    def layout_named(self, name: str, form: type[L], *, shared: bool = False) -> L:
        """Return how values of the class ``name`` are decoded. Raises ``CorruptDataError`` if it is not a name."""
        found = self._layouts.get((name, form, shared))
        if found is None:
            found = self._layouts[name, form, shared] = self._new_layout(name, form, shared)
        return found  # type: ignore[return-value]  # _FORMS has a subclass of each form

    def converter_named(self, name: str) -> Converter:
        """Return the converter ``name``. Raises ``CorruptDataError`` if there is none."""
        if ":" not in name and name not in _OF_A_CLASS:
            return converter_named(name)
        found = self._converters.get(name)
        if found is None:
            kind = type("StandIn", (_ContentPlaceholder,), {})
            found = Converter(name, attrgetter("content"), kind, any_parts=True)
            self._converters[name] = self._by_class[kind] = found
        return found

    def record_layout(self, name: str, fields: tuple[str, ...], shared: bool) -> RecordLayout:
        """Return the layout of the records of a class that have these fields."""
        found = self._records.get((name, fields, shared))
        if found is None:
            found = RecordLayout(_new_class(name, fields))
            found.mutable = shared
            self._records[name, fields, shared] = self._by_class[found.kind] = found
        return found

    def _new_layout(self, name: str, form: type[ClassLayout], shared: bool) -> ClassLayout:
        layout = _FORMS[form](name, shared, self)
        self._by_class[layout.kind] = layout
        return layout


class _ContentPlaceholder:
    """The stand-in of a value that is built from one other value, and may have attributes."""

    def __init__(self, content: Any = None) -> None:
        _content.__set__(self, content)

    __slots__ = ("__dict__", "content")

    def __str__(self) -> str:
        return str(_content.__get__(self))


_content: Any = vars(_ContentPlaceholder)["content"]


class _Objects(ObjectLayout):
    """Objects that are their attributes."""

    def __init__(self, name: str, shared: bool, types: StandIns) -> None:
        super().__init__(_new_class(name, ()))
        self.mutable = shared


class _Records(RecordLayout):
    """Records of one class. Their fields become known when they are read."""

    def __init__(self, name: str, shared: bool, types: StandIns) -> None:
        super().__init__(_new_class(name, ()))
        self.mutable = shared
        self._types = types

    def build(self, names: Sequence[str], columns: Sequence[list[Any]]) -> list[Any]:
        if len(names) != len(columns):
            raise CorruptDataError(f"The fields of {self.name} and their values differ in number.")
        values = self._layout(names).blanks(len(columns[0]))
        for value, row in zip(values, zip(*columns, strict=True), strict=True):
            vars(value).update(zip(names, row, strict=True))
        return values

    def assign(self, values: Sequence[Any], attributes: Sequence[Mapping[str, Any]]) -> None:
        for value, held in zip(values, attributes, strict=True):
            value.__class__ = self._layout(held).kind
            vars(value).update(held)

    def _layout(self, fields: Iterable[str]) -> RecordLayout:
        return self._types.record_layout(self.name, tuple(fields), self.mutable)


class _Subclasses(SubclassLayout):
    """Values of a subclass of a built-in type, with that value as their content."""

    def __init__(self, name: str, shared: bool, types: StandIns) -> None:
        super().__init__(_new_class(name, (), _ContentPlaceholder), object)
        self.mutable = shared

    def attributes(self, value: Any) -> dict[str, Any]:
        return dict(vars(value))

    def plain(self, value: Any) -> Any:
        return _content.__get__(value)

    def build(self, plain: Any) -> Any:
        return self.kind(plain)

    def fill(self, value: Any, members: Any) -> None:
        _content.__set__(value, members)

    def _assign(self, value: Any, name: str, content: Any) -> None:
        vars(value)[name] = content


class _Enums(EnumLayout):
    """Members of an enumeration, with their name or number as their content."""

    def __init__(self, name: str, shared: bool, types: StandIns) -> None:
        ClassLayout.__init__(self, _new_class(name, (), _ContentPlaceholder))

    def plain(self, value: Any) -> str | int:
        return _content.__get__(value)  # type: ignore[no-any-return]

    def build(self, plain: Any) -> Any:
        return self.kind(plain)


_Form: TypeAlias = Callable[[str, bool, StandIns], ClassLayout]
_FORMS: Mapping[type[ClassLayout], _Form] = {
    ClassLayout: _Objects,
    RecordLayout: _Records,
    SubclassLayout: _Subclasses,
    EnumLayout: _Enums,
}


def _new_class(name: str, fields: tuple[str, ...], base: type = object) -> type:
    """Create a dataclass without methods. Nothing is compiled from the names."""
    module, colon, qualname = name.partition(":")
    if not colon:
        raise CorruptDataError(f"The bytes name {name!r}, which is not the name of a class.")
    try:
        kind = dataclasses.make_dataclass("StandIn", fields, bases=(base,), init=False, repr=False, eq=False)
    except (TypeError, ValueError) as error:
        raise CorruptDataError(f"The fields of {name} are invalid: {error}") from error
    kind.__module__, kind.__qualname__ = module, qualname
    return kind
