"""Records of one class travel as columns, and come out as they were."""

from __future__ import annotations

import pickle
from dataclasses import InitVar, dataclass, field
from typing import Any, NamedTuple

import pytest

from dsv2.errors import CorruptDataError
from dsv2.runtime.records import pack, unpack


class Point(NamedTuple):
    x: int
    name: str = "p"


@dataclass
class Plain:
    x: int
    names: list[str]


@dataclass(frozen=True, slots=True)
class Slotted:
    x: int
    name: str = "s"


@dataclass
class Checked:
    x: int

    def __post_init__(self) -> None:
        self.x += 1


@dataclass
class OwnInit:
    x: int

    def __init__(self, x: int) -> None:
        self.x = 2 * x


@dataclass
class WithInitVar:
    x: int
    factor: InitVar[int] = 1


@dataclass
class Hidden:
    x: int
    made: int = field(init=False, default=7)


@dataclass(frozen=True, slots=True)
class OwnState:
    x: int

    def __getstate__(self) -> list[int]:
        return [self.x]

    def __setstate__(self, state: list[int]) -> None:
        object.__setattr__(self, "x", state[0] + 1)


class Derived(Point):
    pass


@dataclass(order=True)
class Child(Plain):
    more: int = 0


COLUMNS: list[list[Any]] = [
    [Point(1), Point(2, "q")],
    [Plain(1, ["a"]), Plain(2, [])],
    [Slotted(1), Slotted(2, "q")],
]
AS_THEY_ARE: list[list[Any]] = [
    [],
    [1, 2],
    [(1, 2), (3, 4)],
    [Point(1), (1, "p")],
    [Derived(1)],
    [Checked(1)],
    [OwnInit(1)],
    [WithInitVar(1, 5)],
    [Hidden(1)],
    [OwnState(1)],
    [Child(1, [], 2)],
    [None, None],
]


@pytest.mark.parametrize("records", COLUMNS, ids=lambda records: type(records[0]).__name__)
def test_records_of_a_simple_class_become_columns_and_records_again(records: list[Any]) -> None:
    packed = pickle.loads(pickle.dumps(pack(records)))  # noqa: S301 - our own bytes
    assert isinstance(packed, tuple)
    assert unpack(packed) == records
    assert {type(record) for record in unpack(packed)} == {type(records[0])}


@pytest.mark.parametrize("records", AS_THEY_ARE, ids=lambda records: repr(records)[:30])
def test_other_records_are_left_alone(records: list[Any]) -> None:
    assert pack(records) is records
    assert unpack(records) is records


def test_a_record_with_more_than_its_fields_keeps_it() -> None:
    record = Plain(1, [])
    record.note = "kept"  # type: ignore[attr-defined]
    assert pack([Plain(0, []), record])[1] is record


def test_a_record_with_less_than_its_fields_is_left_alone() -> None:
    record = Plain(1, [])
    del record.x
    records = [record]
    assert pack(records) is records


@pytest.mark.parametrize("packed", [(dict, [[1]]), ("Point", [[1]]), (Checked, [[1]]), (Point, [[1]])])
def test_columns_that_no_class_has_sent_are_refused(packed: Any) -> None:
    with pytest.raises(CorruptDataError, match="do not travel as columns"):
        unpack(packed)
