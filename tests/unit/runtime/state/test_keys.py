"""Keys: equal keys have equal hashes in every process and version, and hashes are distributed evenly over subtasks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import KEEP, Enum, Flag, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import CollectSink, ExecutionEnvironment, RuntimeExecutionMode
from dsv2.errors import InvalidKeyError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.state.key_groups import stable_hash, subtask_of
from dsv2.state import StateDeclarations
from tests import ROOT

PARIS = ZoneInfo("Europe/Paris")


class Level(IntEnum):
    HIGH = 3


class Colour(StrEnum):
    RED = "red"


class Mixed(str, Enum):  # noqa: UP042 - the older way to say it
    RED = "red"


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Place:
    city: str
    number: Any = 0


@dataclass(frozen=True)
class AnyCase:
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyCase) and self.text.lower() == other.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())


class AnyCaseText(str):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class AnyValue(Enum):
    A = "a"

    def __eq__(self, other: object) -> bool:
        return getattr(other, "value", other) == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class Rights(Flag):
    READ = 1
    WRITE = 2


class OpenRights(Flag, boundary=KEEP):
    READ = 1


class NewRights(Flag, boundary=KEEP):
    """Flags that older versions of Python create: those with undeclared bits are not equal to each other."""

    READ = 1

    @classmethod
    def _missing_(cls, value: Any) -> NewRights:
        found = object.__new__(cls)
        found._value_ = value
        found._name_ = None
        return found


@dataclass
class Changeable:
    city: str


@dataclass(eq=False)
class SameOnlyAsItself:
    city: str


# State is stored by these numbers: changing one makes every checkpoint unreadable.
PINNED: list[tuple[Hashable, int]] = [
    ("topic", 0x9DE92F63), ("", 0x0), (b"topic", 0xFA20B1AE), (0, 0x0), (1, 0x9E3779B9), (-1, 0x3C6EF373),
    (1 << 100, 0xBE82D63F), (0.5, 0xC7F4A7C1), (Decimal("12.34"), 0xC0E3DB84), (("a", 1), 0xB8F7C126), ((), 0x0),
    ((None, ("b", 2.5)), 0xE4E1A88B), (date(2024, 2, 29), 0xE9F15607), (datetime(2024, 2, 29, 12, 30), 0x425D6C03),
    (datetime(2024, 2, 29, 12, 30, tzinfo=UTC), 0x925FB087),
    (time(12, 30), 0xC77BA616), (timedelta(days=1), 0x936A7FCF), (UUID(int=7), 0x20A54B2B),
    (RuntimeExecutionMode.BATCH, 0x05EF320D), (Place("Rome", 7), 0x4B45D777),
]  # fmt: skip


@pytest.mark.parametrize(("key", "expected"), PINNED, ids=lambda value: repr(value)[:40])
def test_hash_of_a_key_never_changes(key: Hashable, expected: int) -> None:
    assert stable_hash(key) == expected


def test_hash_does_not_depend_on_the_hash_seed() -> None:
    """Python's own hash of strings does."""
    code = (
        "from tests.unit.runtime.state.test_keys import PINNED, stable_hash\n"
        "print(hash('topic'), *(stable_hash(key) for key, _ in PINNED))"
    )
    seeds = ("1", "2")
    (first, *hashes), (second, *others) = [
        subprocess.check_output(
            [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed}
        ).split()
        for seed in seeds
    ]
    assert first != second
    assert hashes == others
    assert list(map(int, hashes)) == [expected for _, expected in PINNED]


EQUAL: list[tuple[Hashable, ...]] = [
    (1, 1.0, True, Decimal(1), Decimal("1.00"), Fraction(1)),
    (0, -0.0, 0.0, False, Decimal(0)),
    (0.5, Decimal("0.5"), Fraction(1, 2)),
    (float("inf"), Decimal("Infinity")),
    (3, Level.HIGH),
    ("red", Colour.RED, Mixed.RED),
    ((1, "red"), Pair(1, "red"), Pair(1.0, Colour.RED)),
    (Place("Rome", 1), Place("Rome", True), Place("Rome", Decimal(1))),
    (datetime(2024, 7, 1, 12, tzinfo=UTC), datetime(2024, 7, 1, 14, tzinfo=PARIS)),
    # Within one zone the wall clock decides, although summer time ends between these two.
    (datetime(2024, 10, 27, 2, 30, tzinfo=PARIS), datetime(2024, 10, 27, 2, 30, tzinfo=PARIS, fold=1)),
    (datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 27, 2, 30, fold=1)),
    (time(12, tzinfo=UTC), time(14, tzinfo=timezone(timedelta(hours=2)))),
    (time(12, tzinfo=UTC), time(12, tzinfo=UTC, fold=1)),
    (timedelta(days=1), timedelta(hours=24)),
]


@pytest.mark.parametrize("keys", EQUAL, ids=lambda keys: repr(keys[0])[:40])
def test_equal_keys_have_equal_hashes(keys: tuple[Hashable, ...]) -> None:
    assert all(key == keys[0] for key in keys), "the example is wrong"
    assert len({stable_hash(key) for key in keys}) == 1


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_equal_numbers_have_equal_hashes(number: float) -> None:
    others = (Fraction(number), Decimal(number), *((float(number),) if float_is_exact(number) else ()))
    assert {stable_hash(other) for other in others} == {stable_hash(number)}


def float_is_exact(number: float) -> bool:
    try:
        return float(number) == number
    except OverflowError:
        return False


@given(st.datetimes(timezones=st.timezones()), st.timezones())
def test_equal_instants_have_equal_hashes(instant: datetime, zone: ZoneInfo) -> None:
    try:
        elsewhere = instant.astimezone(zone)
    except OverflowError:
        return
    if elsewhere == instant:  # they differ where clocks are set back or forward
        assert stable_hash(elsewhere) == stable_hash(instant)


@pytest.mark.parametrize("moment", [datetime.min, datetime.max])
@pytest.mark.parametrize("hours", [-23, 23])
def test_extreme_datetimes_are_keys_in_every_zone(moment: datetime, hours: int) -> None:
    assert stable_hash(moment.replace(tzinfo=timezone(timedelta(hours=hours)))) >= 0


def test_hash_does_not_depend_on_the_name_of_a_class() -> None:
    renamed = make_dataclass("Town", [("number", Any), ("city", str)], frozen=True)
    assert stable_hash(renamed(7, "Rome")) == stable_hash(Place("Rome", 7))
    modes = Enum("Modes", {mode.name: mode.value for mode in RuntimeExecutionMode}, module="elsewhere")  # type: ignore[misc]
    assert [*map(stable_hash, modes)] == [*map(stable_hash, RuntimeExecutionMode)]


def test_similar_keys_of_different_types_differ() -> None:
    keys = ["1", b"1", 1, (1,), ((1,),), Place("1"), Pair("1", 0), None, date(1, 1, 1), datetime(1, 1, 1)]
    assert len({stable_hash(key) for key in keys}) == len(keys)


SPREAD: dict[str, Iterable[Hashable]] = {
    "numbers": range(4000),
    "thousands": range(0, 4_000_000, 1000),
    "milliseconds": range(1_700_000_000_000, 1_700_004_000_000, 1000),
    "upper bits": [i << 40 for i in range(4000)],
    "negative": range(-4000, 0),
    "fractions": [i / 4096 for i in range(4000)],
    "prices": [Decimal(i) / 100 for i in range(4000)],
    "words": [f"user-{i}" for i in range(4000)],
    "bytes": [i.to_bytes(4, "big") for i in range(4000)],
    "tuples": [(i % 60, i // 60) for i in range(4000)],
    "places": [Place(f"city {i % 60}", i // 60) for i in range(4000)],
    "days": [date(2000, 1, 1) + timedelta(days=i) for i in range(4000)],
}


@pytest.mark.parametrize("parallelism", [2, 3, 8])
@pytest.mark.parametrize("name", SPREAD)
def test_keys_are_distributed_evenly(name: str, parallelism: int) -> None:
    keys = list(SPREAD[name])
    counts = Counter(subtask_of(key, 128, parallelism) for key in keys)
    assert sorted(counts) == list(range(parallelism))
    assert max(counts.values()) < 1.15 * len(keys) / parallelism


@pytest.mark.parametrize(("max_parallelism", "parallelism"), [(128, 1), (128, 3), (128, 128), (10, 7), (1, 1)])
def test_subtasks_own_key_group_ranges_as_in_flink(max_parallelism: int, parallelism: int) -> None:
    """``KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex``."""
    owners = {stable_hash(key) % max_parallelism: subtask_of(key, max_parallelism, parallelism) for key in range(4000)}
    assert len(owners) == max_parallelism
    for subtask in range(parallelism):
        first = (subtask * max_parallelism + parallelism - 1) // parallelism
        last = ((subtask + 1) * max_parallelism - 1) // parallelism
        assert [group for group, owner in sorted(owners.items()) if owner == subtask] == [*range(first, last + 1)]


REFUSED: list[tuple[Any, str]] = [
    (object(), "A key of type object cannot be assigned to a subtask: its hash differs between processes. Use str,"),
    (["a"], "A key of type list cannot"), ({"a": 1}, "A key of type dict cannot"),
    (frozenset("a"), "A key of type frozenset cannot"),
    (Changeable("Rome"), "A key of type Changeable cannot"),
    (SameOnlyAsItself("Rome"), "A key of type SameOnlyAsItself cannot"),
    (("a", ["b"]), "A key of type list cannot"),
    (Place("Rome", object()), "A key of type object cannot"),
    (float("nan"), "NaN cannot be a key: it is not equal to itself."),
    (Decimal("NaN"), "NaN cannot be a key"), (Decimal("sNaN"), "NaN cannot be a key"),
    ((1, float("nan")), "NaN cannot be a key"),
    (pd.NaT, "NaT cannot be a key: it is not equal to itself."),
    ((1, pd.NaT), "NaT cannot be a key"), (np.float64("nan"), "NaN cannot be a key"),
    (pd.NA, "A key of type NAType cannot"),
    (np.int64(5),
     "A key of type int64 cannot be assigned to a subtask: its hash differs between processes. Return key.item"),
    (np.datetime64("2024-01-01"), "Return key.item()"),
    (frozenset("ab"), "Return tuple(sorted(key)). Use str,"),
    (Path("/x"), "Return str(key)."),
    (AnyCase("a"), "the class compares in its own way (__eq__). Return what it compares"),
    (AnyCaseText("a"), "A key of type AnyCaseText cannot be assigned to a subtask: the class compares in its own way"),
    (AnyValue.A, "the class compares in its own way"),
    (NewRights(8), "<NewRights: 8> cannot be a key: two flags with the same undeclared bits are not equal"),
    (("a", NewRights(8)), "Python. Return key.value."),
    (None, "The assigned key must not be None. The key selector must return a value for every record."),
]  # fmt: skip


@pytest.mark.parametrize(("key", "message"), REFUSED, ids=lambda value: repr(value)[:40])
def test_invalid_keys_are_refused(key: Any, message: str) -> None:
    with pytest.raises(InvalidKeyError) as caught:
        subtask_of(key, 128, 2)
    assert message in str(caught.value)


class Bits(IntFlag):
    READ = 1
    WRITE = 2


@pytest.mark.parametrize(
    "key",
    [
        *map(Rights, range(4)),
        *filter(lambda key: key == OpenRights(key.value), map(OpenRights, (0, 1, 8, 9))),  # in this version of Python
        *map(Bits, (0, 3, 7)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_flags_are_keys(key: Any, parallelism: int) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(parallelism)
    for kind in (Rights, OpenRights, Bits):
        env.register_type(kind)
    sink = CollectSink[Any]()
    keyed = env.from_collection([(key, 1), (key, 2)]).with_parallelism(1).key_by(lambda pair: pair[0])
    keyed.process(Counts()).to_sink(sink)
    env.execute()
    assert sink.results == [(key, 1), (key, 2)]


class Counts(OneInputStreamProcessFunction[Any, Any]):
    COUNT = StateDeclarations.value_state("count", int)

    def uses_states(self) -> Any:
        return [self.COUNT]

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(self.COUNT)
        count.update((count.value() or 0) + 1)
        output.collect((ctx.state_manager.current_key, count.value()))


EQUAL_ACROSS_CLASSES: list[tuple[Hashable, Hashable]] = [
    (True, 1), (1, 1.0), (1, Decimal(1)), (0.0, -0.0), (Decimal("-0"), 0), (0.5, np.float64(0.5)), ("x", np.str_("x")),
    (Bits(3), 3), ((1, 2), Pair(1, 2)),
    (datetime(2024, 1, 1), pd.Timestamp("2024-01-01")),
    (datetime(2024, 1, 1, tzinfo=UTC), pd.Timestamp("2024-01-01 01:00", tz="Europe/Paris")),
    (timedelta(seconds=1), pd.Timedelta("1s")),
    (datetime(2024, 10, 27, 2, 30, fold=0), datetime(2024, 10, 27, 2, 30, fold=1)),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), EQUAL_ACROSS_CLASSES, ids=repr)
def test_equal_keys_of_different_classes_have_one_hash(one: Hashable, other: Hashable) -> None:
    assert one == other
    assert stable_hash(one) == stable_hash(other)
