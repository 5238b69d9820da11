"""Programs for joins: those of Flink's ``JoinITCase``, and interval joins of every type."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from dsv2 import Collector, PartitionedContext, RuntimeContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinFunction, JoinType, interval_join, join, join_by_key, join_keyed
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN
from tests.conformance.harness import Pipeline, Program, Run
from tests.oracles.joins import Row, SlowIntervalJoin

__all__ = ("PROGRAMS",)

Pair = tuple[str, int]

SAME: Sequence[Pair] = [("key", number) for number in range(3)]
NINE = [f"key:{left}:{right}" for left in range(3) for right in range(3)]
LEFT: Sequence[Pair] = [("key0", 0), ("key1", 1), ("key2", 2), ("key2", 3)]
RIGHT: Sequence[Pair] = [("key2", 4), ("key2", 5), ("key0", 6), ("key1", 7)]


def key_of(pair: Pair) -> str:
    """A key selector."""
    return pair[0]


def is_none(pair: Pair) -> bool:
    """Lets nothing through."""
    return False


def text_of(left: Pair, right: Pair, output: Collector[str], ctx: RuntimeContext) -> None:
    """Joins to a text."""
    output.collect(f"{left[0]}:{left[1]}:{right[1]}")


class TextOf(JoinFunction[Pair, Pair, str]):
    """The same as a class."""

    def process_record(self, left: Pair, right: Pair, output: Collector[str], ctx: RuntimeContext) -> None:
        text_of(left, right, output, ctx)


class TupleOf(JoinFunction[Pair, Pair, tuple[str, int, int]]):
    """Joins to a tuple."""

    def process_record(
        self, left: Pair, right: Pair, output: Collector[tuple[str, int, int]], ctx: RuntimeContext
    ) -> None:
        output.collect((left[0], left[1], right[1]))


class InnerJoins(Program):
    """testInnerJoinWithSameKey, …WithWrappedJoinProcessFunction, …WithKeyedStream, …WithNonKeyedStream, …WithTuple."""

    def build(self, p: Pipeline) -> None:
        left, right = p.source(SAME), p.source(SAME)
        keyed, other = left.key_by(key_of), right.key_by(key_of)
        p.collect(keyed.connect_and_process(other, join(TextOf())), "wrapped")
        p.collect(join_keyed(keyed, other, text_of), "keyed")
        p.collect(join_by_key(left, key_of, right, key_of, text_of), "non-keyed")
        kept = keyed.connect_and_process(other, join(text_of), lambda text: text.partition(":")[0])
        p.collect(kept.process(with_key), "kept")
        p.collect(join_keyed(keyed, other, TupleOf()), "tuple")

    def check(self, run: Run) -> None:
        for name in ("wrapped", "keyed", "non-keyed"):
            run.expect_all(*NINE, name=name)
        run.expect_all(*(("key", text) for text in NINE), name="kept")
        run.expect_all(*(("key", left, right) for left in range(3) for right in range(3)), name="tuple")


def with_key(text: str, output: Collector[tuple[Any, str]], ctx: PartitionedContext[tuple[Any, str]]) -> None:
    """Shows the key that the join has kept."""
    output.collect((ctx.state_manager.current_key, text))


class InnerJoinOfSeveralKeys(Program):
    """testInnerJoinWithMultipleKeys; testInnerJoinWhenLeftInputNoData, …RightInputNoData."""

    def build(self, p: Pipeline) -> None:
        left, right = p.source(LEFT), p.source(RIGHT)
        p.collect(join_by_key(left, key_of, right, key_of, text_of))
        p.collect(join_by_key(left.filter(is_none), key_of, right, key_of, text_of), "no left")
        p.collect(join_by_key(left, key_of, right.filter(is_none), key_of, text_of), "no right")

    def check(self, run: Run) -> None:
        run.expect_all("key0:0:6", "key1:1:7", "key2:2:4", "key2:2:5", "key2:3:4", "key2:3:5")
        run.expect(name="no left")
        run.expect(name="no right")


LEFT_ROWS: Sequence[Row] = [Row("abc"[number % 3], number, 7 * number) for number in range(16)]
RIGHT_ROWS: Sequence[Row] = [Row("bca"[number % 3], number, 5 * number) for number in range(24)]
LOWER, UPPER = -6, 9


class Stamped(OneInputStreamProcessFunction[Any, Any]):
    """Records with their timestamps."""

    def process_record(self, record: Any, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect((record, ctx.timestamp))


class PairOf(JoinFunction[Any, Any, tuple[Any, Any]]):
    """Joins to a pair; with None for what is missing."""

    def process_record(self, left: Any, right: Any, output: Collector[tuple[Any, Any]], ctx: RuntimeContext) -> None:
        output.collect((left, right))


def row_key(row: Row) -> str:
    """A key selector."""
    return row.key


def row_time(row: Row) -> int:
    """An event time."""
    return row.timestamp


class IntervalJoins(Program):
    """Rows of each channel come in order, so none is late, and the answer is one."""

    def build(self, p: Pipeline) -> None:
        builder = EventTimeExtension.new_watermark_generator_builder(row_time).per_event_watermark()
        left, right = (
            p.source(rows).process(builder.build_as_process_function()).key_by(row_key)
            for rows in (LEFT_ROWS, RIGHT_ROWS)
        )
        any_join: Any = interval_join  # its overloads each take one type
        lower, upper = timedelta(milliseconds=LOWER), timedelta(milliseconds=UPPER)
        for join_type in JoinType:
            joined: Any = left.connect_and_process(right, any_join(PairOf(), lower, upper, join_type))
            joined = joined.with_uid(p.uid(join_type.value))
            p.collect(joined.process(Stamped()), join_type.value)

    def check(self, run: Run) -> None:
        for join_type in JoinType:
            slow = SlowIntervalJoin(join_type.value, LOWER, UPPER)
            expected = [pair for row in LEFT_ROWS for pair in slow.take(0, row, LONG_MIN)]
            expected += [pair for row in RIGHT_ROWS for pair in slow.take(1, row, LONG_MIN)]
            expected += slow.move_to(LONG_MAX)
            assert expected
            assert "late_records_dropped" not in run.progress(join_type.value).counters
            if join_type is JoinType.SEMI:  # whom a row meets first is a matter of chance
                assert {pair for pair, _ in run.out("semi")} == {pair for pair, _ in expected}
                assert len(run.out("semi")) == len(expected)
            else:
                run.expect_all(*expected, name=join_type.value)


PROGRAMS: tuple[Program, ...] = (
    InnerJoins(),
    InnerJoinOfSeveralKeys(),
    IntervalJoins(),
)
