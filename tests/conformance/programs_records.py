"""Programs for the types of records and keys."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID

from dsv2.functions import OneInputStreamProcessFunction
from tests.conformance.functions import FEW, NUMBERS, Located, Merge, Pass, mod3
from tests.conformance.harness import Pipeline, Program, Run


class Color(Enum):
    """An enum."""

    RED = 1
    GREEN = 2


class Point(NamedTuple):
    """A NamedTuple."""

    x: int
    y: int


@dataclass(frozen=True)
class Place:
    """A frozen dataclass."""

    name: str
    point: Point


def to_place(number: int) -> Place:
    """A named function that creates records of a class that nothing else in the pipeline mentions."""
    return Place(str(number), Point(number, -number))


def local_class() -> type:
    """A class that cannot be imported."""

    @dataclass(frozen=True)
    class Inner:
        number: int

    return Inner


def main_class() -> type:
    """A class as a program's own script defines it, in ``__main__``."""
    script = ModuleType("__main__")
    source = "from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Posting:\n    number: int\n"
    exec(compile(source, "script.py", "exec"), vars(script))
    kind: type = script.Posting
    return kind


class OwnClasses(Program):
    """Classes of the program's script, of a function, and of a module that is mentioned only by a function."""

    def build(self, p: Pipeline) -> None:
        posting: Any = main_class()
        # A script's own classes are attributes of ``__main__``.
        sys.modules["__main__"].Posting = posting  # type: ignore[attr-defined]
        inner: Any = local_class()
        p.collect(p.source(NUMBERS).map(to_place).shuffle().map(lambda place: place.point), "named")
        p.collect(p.source(NUMBERS).map(lambda number: inner(number)).key_by(lambda i: i).process(Pass()), "local")
        p.collect(p.source(NUMBERS).map(lambda number: posting(number)).key_by(lambda i: i).process(Pass()), "main")
        p.collect(p.source(NUMBERS).process(KeepsOwn(inner, posting)), "fields")
        # Keys computed by the source and by the operator are equal, in any processes.
        found = p.source(NUMBERS).key_by(lambda number: inner(mod3(number)))
        p.collect(
            found.connect_and_process(p.source(NUMBERS).map(int).key_by(lambda number: inner(mod3(number))), Merge()),
            "keys",
        )

    def check(self, run: Run) -> None:
        run.expect(*(Point(number, -number) for number in NUMBERS), name="named")
        for name, kind in (("local", "Inner"), ("main", "Posting")):
            assert {type(record).__name__ for record in run.out(name)} == {kind}
            assert sorted(record.number for record in run.out(name)) == list(NUMBERS)
        subtasks = {(mod3(seen.value), seen.subtask) for seen in run.out("keys")}
        assert (len(run.out("keys")), len(subtasks)) == (2 * len(NUMBERS), 3)
        assert sorted(run.out("fields")) == [("Inner", "Posting", len(NUMBERS) // run.parallelism)] * run.parallelism


class KeepsOwn(OneInputStreamProcessFunction[int, Any]):
    """Keeps objects of a program's own classes in its fields."""

    def __init__(self, inner: Any, posting: Any) -> None:
        self.inner = inner
        self.posting = posting
        self.kept: list[Any] = []

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.kept.append((self.inner(record), self.posting(record)))

    def end_input(self, ctx: Any) -> None:
        kinds = {(type(inner).__name__, type(posting).__name__) for inner, posting in self.kept}
        assert all(type(inner) is self.inner and type(posting) is self.posting for inner, posting in self.kept)
        for inner, posting in sorted(kinds):
            said = (inner, posting, len(self.kept))
            ctx.apply_to_all_partitions(lambda output, partition, said=said: output.collect(said))


KEYS: list[list[Any]] = [
    [1, 1.0, True, Decimal("1.0"), Fraction(1)],
    [0, -0.0, False],
    ["a"],
    ["ä\x00"],
    [b"a"],
    [("a", 1), ("a", True)],
    [Point(1, 2), (1, 2)],
    [Place("here", Point(3, 4)), Place("here", Point(3, 4))],
    [Color.RED],
    [Color.GREEN],
    [date(2024, 2, 29)],
    [datetime(2024, 2, 29, 12, tzinfo=UTC)],
    [timedelta(seconds=1)],
    [UUID(int=1)],
    [2**70],
    [(None, 1)],
]


def every_key(number: int) -> list[tuple[int, Any]]:
    """Every key, with the number of its group."""
    return [(group, key) for group, keys in enumerate(KEYS) for key in keys]


class AnyKey(Program):
    """Keys of every type. Equal keys are one key."""

    def build(self, p: Pipeline) -> None:
        stream = p.source(FEW).flat_map(every_key).shuffle().map(tuple)
        p.collect(stream.key_by(lambda item: item[1]).process(Located(keyed=True)))

    def check(self, run: Run) -> None:
        assert len(run.out()) == 2 * sum(map(len, KEYS))
        by_group = run.grouped(lambda seen: seen.value[0])
        for group, keys in enumerate(KEYS):
            assert len(by_group[group]) == 2 * len(keys)
            assert len({seen.subtask for seen in by_group[group]}) == 1, keys
            assert {seen.key for seen in by_group[group]} == set(keys)


class WideFrames(Program):
    """More records at once than fit into a frame, and records larger than a frame."""

    COUNT = 20_000
    LARGE = 700_000

    def build(self, p: Pipeline) -> None:
        many = p.source(NUMBERS).flat_map(spread)
        p.collect(many.key_by(mod3).process(Adding()), "many")
        large = p.source(NUMBERS).map(inflate)
        p.collect(large.shuffle().map(len), "large")

    def check(self, run: Run) -> None:
        assert sum(total for total, _ in run.out("many")) == sum(range(self.COUNT)) * len(NUMBERS)
        assert sum(count for _, count in run.out("many")) == self.COUNT * len(NUMBERS)
        run.expect(*(self.LARGE + number for number in NUMBERS), name="large")


def spread(number: int) -> range:
    """Many records for one."""
    return range(WideFrames.COUNT)


def inflate(number: int) -> str:
    """A large record for a small one."""
    return "x" * (WideFrames.LARGE + number)


class Adding(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """The sum and number of its records, at the end."""

    def __init__(self) -> None:
        self.total = 0
        self.count = 0

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.total += record
        self.count += 1

    def end_input(self, ctx: Any) -> None:
        done: list[Any] = []

        def once(output: Any, partition: Any) -> None:
            if not done:
                output.collect((self.total, self.count))
            done.append(partition)

        ctx.apply_to_all_partitions(once)


PROGRAMS: tuple[Program, ...] = (OwnClasses(), AnyKey(), WideFrames())
