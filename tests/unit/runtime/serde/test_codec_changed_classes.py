"""Serialized values of classes that have changed since."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pytest

from dsv2.errors import CorruptDataError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from tests.codec_classes import Colour, Open, Pair, Tweet


def changed(value: Any, now: type) -> Any:
    """``value`` as read by a program whose class of that name is ``now``."""
    was = type(value)
    now.__module__, now.__qualname__ = was.__module__, was.__qualname__
    return Codec(TypeRegistry([now])).loads(Codec(TypeRegistry([was])).dumps(value), "State")


def test_kind_of_class_may_change() -> None:
    @dataclass(frozen=True, slots=True)
    class Tight:
        anything: Any

    @dataclass
    class Loose:
        time: int
        topic: str

    class Tuple(NamedTuple):
        anything: Any

    assert changed(Open([1]), Tight) == Tight([1])
    assert changed(Tweet("a", 1), Loose) == Loose(1, "a")
    assert changed(Open([1]), Tuple) == Tuple([1])


def test_fields_may_be_removed_or_added_with_a_default() -> None:
    @dataclass
    class Now:
        time: int
        tags: list[str] = field(default_factory=list)
        language: str = "en"

    assert changed(Tweet("a", 1), Now) == Now(1, [], "en")

    class Triple(NamedTuple):
        left: Any
        middle: Any = 7

    assert changed(Pair(1, 2), Triple) == Triple(1, 7)


def test_new_field_without_default_is_refused() -> None:
    @dataclass
    class Now:
        topic: str
        time: int
        language: str

    with pytest.raises(CorruptDataError) as refused:
        changed(Tweet("a", 1), Now)
    assert str(refused.value) == (
        f"State: {Tweet.__module__}:Tweet was written with the fields topic, time, and now it also has 'language', "
        f"which has no default. Add a default."
    )


def test_enum_members_are_matched_by_name() -> None:
    class Renumbered(Enum):
        GREEN = 1
        RED = 2

    class Gone(Enum):
        GREEN = 1

    assert changed(Colour.RED, Renumbered) is Renumbered.RED
    with pytest.raises(CorruptDataError, match="Colour has no member 'RED'"):
        changed(Colour.RED, Gone)
