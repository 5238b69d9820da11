"""Changes of the classes of state values that a restart refuses before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from types import GenericAlias
from typing import Annotated, Any, ForwardRef, NamedTuple, Optional, Union

import pytest

from dsv2.checkpoint.class_changes import ClassWithFields, FieldDescription, class_changes, classes_of
from dsv2.checkpoint.type_shapes import TypeShape, shape_of, shown
from dsv2.state.types import classes_in


class Inner(NamedTuple):
    number: int
    label: str = ""


@dataclass
class Held:
    name: str
    inner: list[Inner]
    tags: set[str] = field(default_factory=set)
    later: Unknown = None  # type: ignore[name-defined]  # noqa: F821


def held(**fields: Any) -> Any:
    made = [(name, form) if not isinstance(form, tuple) else (name, *form) for name, form in fields.items()]
    return make_dataclass("Held", made, kw_only=True)


def changes(before: Any, now: Any) -> list[str]:
    found = class_changes(classes_of([before]), classes_of([now]), str)
    return [change.replace(f"{before.__module__}.", "") for change in found]


def test_unresolvable_annotations_are_compared_as_text() -> None:
    assert changes(Held, Held) == []
    described = classes_of([Held])[f"{__name__}.Held"]
    assert isinstance(described, ClassWithFields)
    assert described.fields["later"] == FieldDescription(TypeShape("Unknown"), True)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"a": int, "b": str}, {"b": str, "a": int}),
        ({"a": int}, {"a": int, "b": (str, "")}),
        ({"a": int}, {"a": int, "b": (list[int], field(default_factory=list))}),
        ({"a": int, "b": str}, {"a": int}),
        ({"a": int}, {"a": int | None}),
        ({"a": int | None}, {"a": Optional[int]}),  # noqa: UP045 - the same in another spelling
        ({"a": Union[str, int]}, {"a": int | str}),  # noqa: UP007
        ({"a": int}, {"a": float}),
        ({"a": int}, {"a": Any}),
        ({"a": Any}, {"a": int}),
        ({"a": int}, {"a": object}),
    ],
)
def test_compatible_changes(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert changes(held(**before), held(**now)) == []


def test_added_or_removed_classes_are_no_class_change() -> None:
    assert class_changes(classes_of([Inner]), classes_of([Held]), str) == []


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (list[None], "list[NoneType]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Callable[[int, str], bool], "collections.abc.Callable[[int, str], bool]"),
        (Annotated[int, "in ms"], "int"),
        (GenericAlias(list, (ForwardRef("Later"),)), "list[Later]"),
    ],
)
def test_types_in_messages(form: Any, text: str) -> None:
    assert shown(shape_of(form)) == text


def test_classes_of_parameters_are_found() -> None:
    assert classes_in(Callable[[Inner], str]) >= {Inner, int, str}
