"""Splits as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.sources import DataclassSerializer, serializers


@dataclass(frozen=True)
class Range:
    start: int
    stop: int | None = None


@dataclass(frozen=True)
class Split:
    name: str
    ratio: float
    open: bool
    parts: tuple[Range, ...] = ()
    names: tuple[str, ...] | None = None
    best: Range | None = None


WHOLE = Split("a", 1, True, (Range(1, 2), Range(3)), ("x", "y"), Range(5))


@pytest.mark.parametrize("value", [WHOLE, Split("b", 0.5, False)])
def test_dataclass_survives_a_round_trip(value: Split) -> None:
    serializer = DataclassSerializer(Split)
    assert serializer.from_json(json.loads(json.dumps(serializer.to_json(value)))) == value


def test_json_is_readable() -> None:
    assert DataclassSerializer(Range).to_json(Range(1)) == {"start": 1, "stop": None}


def test_missing_fields_have_their_defaults() -> None:
    assert DataclassSerializer(Range).from_json({"start": 7}) == Range(7)


@pytest.mark.parametrize(
    "written",
    [{"stop": 1}, {"start": "1"}, {"start": 1, "end": 2}, [], 5, None, {"start": [1]}, {"start": {}}, {"start": True}],
)
def test_anything_else_is_refused(written: Any) -> None:
    with pytest.raises(CorruptDataError, match="is not a Range"):
        DataclassSerializer(Range).from_json(written)


@dataclass(frozen=True)
class OfBytes:
    data: bytes


@dataclass(frozen=True)
class OfPair:
    pair: tuple[str, int]


@dataclass(frozen=True)
class OfList:
    items: list[int]


@dataclass(frozen=True)
class Either:
    one: Range | OfList


@dataclass(frozen=True)
class Deep:
    inner: OfBytes


@pytest.mark.parametrize("kind", [OfBytes, OfPair, OfList, Either, Deep])
def test_classes_with_other_field_types_are_refused(kind: type) -> None:
    with pytest.raises(ConfigurationError, match="cannot be restored from JSON"):
        DataclassSerializer(kind)


def test_only_dataclasses_are_accepted() -> None:
    with pytest.raises(ConfigurationError, match="requires a dataclass, got <class 'int'>"):
        DataclassSerializer(int)


def test_types_of_a_class_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources may create a serializer for each micro-batch."""

    @dataclass(frozen=True)
    class Place:
        offset: int

    assert DataclassSerializer(Place).from_json({"offset": 1}) == Place(1)
    monkeypatch.setattr(serializers, "get_type_hints", lambda kind: pytest.fail("looked up again"))
    assert DataclassSerializer(Place).from_json({"offset": 2}) == Place(2)
