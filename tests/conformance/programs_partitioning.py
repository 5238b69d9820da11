"""Programs for the partitioning conversions, the edges between operators, and the shapes of graphs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from dsv2.functions import OneInputStreamProcessFunction
from tests.conformance.functions import (
    FEW,
    NUMBERS,
    Located,
    Merge,
    Pass,
    Rules,
    Seen,
    check_keys,
    check_rules,
    key_of,
    mod3,
    parity,
    value_of,
)
from tests.conformance.harness import Pipeline, Program, Run


@dataclass(frozen=True)
class Repartitioned(Program):
    """One cell of the table of conversions: a stream of kind ``origin`` through ``conversion``."""

    origin: Literal["non-keyed", "keyed", "global"]
    conversion: Literal["key_by", "shuffle", "global", "broadcast"]

    @property
    def name(self) -> str:
        return f"{self.origin}.{self.conversion}"

    def build(self, p: Pipeline) -> None:
        source = p.source(NUMBERS)
        stream: Any = source.map(int)
        if self.origin == "keyed":
            stream = source.key_by(parity).process(Pass[int](), parity)
        elif self.origin == "global":
            stream = source.global_().process(Pass[int]())
        if self.conversion == "key_by":
            p.collect(stream.key_by(mod3).process(Located(keyed=True)))
        elif self.conversion == "shuffle":
            p.collect(stream.shuffle().process(Located()))
        elif self.conversion == "global":
            p.collect(stream.global_().process(Located()))
        else:
            p.collect(p.source(NUMBERS).connect_and_process(stream.broadcast(), Rules()))

    def check(self, run: Run) -> None:
        if self.conversion == "broadcast":
            check_rules(run.parallelism, run.out(), rules=NUMBERS, main=NUMBERS)
            return
        seen: list[Seen] = run.out()
        assert sorted(map(value_of, seen)) == list(NUMBERS)
        if self.conversion == "key_by":
            check_keys(run.parallelism, seen)
        elif self.conversion == "global":
            assert {record.subtask for record in seen} == {0}
        elif self.origin == "global":
            # One subtask distributes all of them in turn.
            spread = Counter(record.subtask for record in seen)
            assert sorted(spread.values()) == [len(NUMBERS) // run.parallelism] * run.parallelism
        if run.parallelism == 1:
            assert list(map(value_of, seen)) == list(NUMBERS)


class ShuffleSpreadsEvenly(Program):
    """Every source subtask sends its records to the subtasks in turn, in any micro-batches.

    Flink distributes at random.
    """

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).shuffle().process(Located()))

    def check(self, run: Run) -> None:
        p = run.parallelism
        dealt = Counter((value_of(record) % p, record.subtask) for record in run.out())
        share = len(NUMBERS) / p / p
        assert all(share - 1 < dealt[lane, subtask] < share + 1 for lane in range(p) for subtask in range(p))


class ForwardStays(Program):
    """Between operators of the same parallelism records stay in their subtask, chained or not."""

    def build(self, p: Pipeline) -> None:
        chained = p.source(NUMBERS).process(Located()).process(Located())
        # Functions with two inputs are never chained.
        p.collect(chained.connect_and_process(p.source(NUMBERS), Merge()))

    def check(self, run: Run) -> None:
        first = [record for record in run.out() if record.input == 1]
        for last in first:
            middle = last.value
            assert last.subtask == middle.subtask == middle.value.subtask == middle.value.value % run.parallelism
        for subtask in range(run.parallelism):
            numbers = [record.value.value.value for record in first if record.subtask == subtask]
            assert numbers == list(NUMBERS[subtask :: run.parallelism])
        second = [record for record in run.out() if record.input == 2]
        assert all(record.subtask == record.value % run.parallelism for record in second)
        assert sorted(map(value_of, second)) == list(NUMBERS)


class Parallelisms(Program):
    """Operators of different parallelism: records are redistributed, and all arrive."""

    def build(self, p: Pipeline) -> None:
        stream = p.source(NUMBERS).map(int).with_parallelism(3)
        p.collect(stream.process(Located()).with_parallelism(2), "two")
        p.collect(stream.process(Located()).with_parallelism(1).process(Located()).with_parallelism(5), "five")

    def check(self, run: Run) -> None:
        assert sorted(map(value_of, run.out("two"))) == list(NUMBERS)
        assert {record.subtask for record in run.out("two")} == {0, 1}
        assert sorted(record.value.value for record in run.out("five")) == list(NUMBERS)
        assert sorted(Counter(record.subtask for record in run.out("five")).values()) == [2, 2, 2, 3, 3]


class KeyedAcrossParallelisms(Program):
    """A stream that stays keyed is partitioned by its key when the next operator has another parallelism."""

    def build(self, p: Pipeline) -> None:
        kept = p.source(NUMBERS).key_by(mod3).process(Located(keyed=True), key_of).with_parallelism(3)
        p.collect(kept.process(Located(keyed=True)).with_parallelism(2))

    def check(self, run: Run) -> None:
        seen: list[Seen] = run.out()
        assert sorted(record.value.value for record in seen) == list(NUMBERS)
        assert all(record.key == record.value.key == mod3(record.value.value) for record in seen)
        assert len({(record.key, record.subtask) for record in seen}) == 3


class RunningCount(OneInputStreamProcessFunction[Any, Seen]):
    """The number of records per key, in an instance field."""

    def __init__(self) -> None:
        self.counts: Counter[Any] = Counter()

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        key = ctx.state_manager.current_key
        self.counts[key] += 1
        output.collect(Seen(self.counts[key], ctx.task_info.index_of_this_subtask, key))


class Rekeyed(Program):
    """Counting by one key, then by another."""

    def build(self, p: Pipeline) -> None:
        counts = p.source(NUMBERS).key_by(mod3).process(RunningCount())
        p.collect(counts, "first")
        p.collect(counts.key_by(value_of).process(RunningCount()), "second")

    def check(self, run: Run) -> None:
        for key in range(3):
            assert [value_of(record) for record in run.out("first") if record.key == key] == [1, 2, 3, 4]
        for key in range(1, 5):
            assert [value_of(record) for record in run.out("second") if record.key == key] == [1, 2, 3]


class FanOut(Program):
    """One stream with many consumers: operators of all kinds, and sinks."""

    def build(self, p: Pipeline) -> None:
        stream = p.source(NUMBERS).map(lambda number: number + 100)
        p.collect(stream, "itself")
        p.collect(stream.map(str), "forward")
        p.collect(stream.shuffle().map(str), "shuffle")
        p.collect(stream.key_by(mod3).process(Pass[int]()), "keyed")
        p.collect(stream.global_().process(Pass[int]()), "global")

    def check(self, run: Run) -> None:
        numbers = [number + 100 for number in NUMBERS]
        for name in ("itself", "keyed", "global"):
            run.expect(*numbers, name=name)
        for name in ("forward", "shuffle"):
            run.expect(*map(str, numbers), name=name)


class Diamond(Program):
    """Two paths from one stream meet in one function. Records keep their order on each path."""

    def build(self, p: Pipeline) -> None:
        stream = p.source(NUMBERS).map(int)
        left, right = stream.map(lambda number: number * 10), stream.shuffle().map(lambda number: -number)
        p.collect(left.connect_and_process(right, Merge()))

    def check(self, run: Run) -> None:
        inputs = {number: [r.value for r in run.out() if r.input == number] for number in (1, 2)}
        assert sorted(inputs[1]) == [number * 10 for number in NUMBERS]
        assert sorted(inputs[2]) == sorted(-number for number in NUMBERS)
        for subtask in range(run.parallelism):
            lane = [r.value // 10 for r in run.out() if r.input == 1 and r.subtask == subtask]
            assert lane == list(NUMBERS[subtask :: run.parallelism])
        if run.parallelism == 1:
            assert inputs[2] == [-number for number in NUMBERS]


class SelfConnected(Program):
    """A stream connected with itself arrives on both inputs."""

    def build(self, p: Pipeline) -> None:
        keyed = p.source(NUMBERS).key_by(mod3)
        p.collect(keyed.connect_and_process(keyed, Merge(keyed=True)))

    def check(self, run: Run) -> None:
        for number in (1, 2):
            seen = [record for record in run.out() if record.input == number]
            assert sorted(map(value_of, seen)) == list(NUMBERS)
            check_keys(run.parallelism, seen)


class SeveralSources(Program):
    """Sources of different lengths, one of them empty."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).map(int), "long")
        p.collect(p.source(FEW).map(int), "short")
        empty = p.source(list[int]())
        p.collect(empty.map(int), "empty")
        p.collect(p.source(NUMBERS).connect_and_process(empty, Merge()), "with-empty")

    def check(self, run: Run) -> None:
        run.expect(*NUMBERS, name="long")
        run.expect(*FEW, name="short")
        run.expect(name="empty")
        assert sorted(map(value_of, run.out("with-empty"))) == list(NUMBERS)


class StraightToSinks(Program):
    """A sink reads a source, a keyed stream and a global one, without an operator in between."""

    def build(self, p: Pipeline) -> None:
        source = p.source(NUMBERS)
        p.collect(source, "source")
        p.collect(source, "again")
        p.collect(source.shuffle(), "shuffled")
        p.collect(source.key_by(mod3), "keyed")
        p.collect(source.global_(), "global")

    def check(self, run: Run) -> None:
        for name in ("source", "again", "shuffled", "keyed", "global"):
            run.expect(*NUMBERS, name=name)
        run.expect_channel_order(int, "source")


class Sugar(Program):
    """``map``, ``filter``, ``flat_map`` and plain callables."""

    def build(self, p: Pipeline) -> None:
        stream = p.source(NUMBERS).map(lambda number: number + 1).filter(lambda number: number % 2 == 0)
        p.collect(stream.flat_map(lambda number: [number] * (number // 4)))
        p.collect(stream.process(lambda number, output, ctx: output.collect(-number)), "callable")

    def check(self, run: Run) -> None:
        run.expect(4, 6, 8, 8, 10, 10, 12, 12, 12)
        run.expect(-2, -4, -6, -8, -10, -12, name="callable")


class Deep(Program):
    """Six exchanges in a row."""

    def build(self, p: Pipeline) -> None:
        stream: Any = p.source(NUMBERS)
        for _ in range(2):
            stream = stream.shuffle().process(Pass[int]()).key_by(mod3).process(Pass[int]())
            stream = stream.global_().process(Pass[int]())
        p.collect(stream)

    def check(self, run: Run) -> None:
        run.expect(*NUMBERS)


ORIGINS: tuple[Literal["non-keyed", "keyed", "global"], ...] = ("non-keyed", "keyed", "global")
CONVERSIONS: tuple[Literal["key_by", "shuffle", "global", "broadcast"], ...] = (
    "key_by",
    "shuffle",
    "global",
    "broadcast",
)

PROGRAMS: tuple[Program, ...] = (
    # A global stream has no global_().
    *(Repartitioned(o, c) for o in ORIGINS for c in CONVERSIONS if (o, c) != ("global", "global")),
    ShuffleSpreadsEvenly(),
    ForwardStays(),
    Parallelisms(),
    KeyedAcrossParallelisms(),
    Rekeyed(),
    FanOut(),
    Diamond(),
    SelfConnected(),
    SeveralSources(),
    StraightToSinks(),
    Sugar(),
    Deep(),
)
