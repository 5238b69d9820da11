"""Programs for joins: those of Flink's ``JoinITCase``, and joins of every type in intervals and windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from dsv2 import Collector, KeyedPartitionStream, PartitionedContext, RuntimeContext
from dsv2.extension.join import JoinFunction, JoinMode, JoinType, Left, Right, join
from dsv2.extension.window import WindowStrategy
from dsv2.sinks import ForeachBatchSink
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN
from tests.conformance.functions import Stamped
from tests.conformance.harness import Pipeline, Program, Run, alike
from tests.conformance.timing import per_event
from tests.durations import ms
from tests.oracles.joins import Joined, Row, SlowIntervalJoin, SlowVersionedJoin, SlowWindowJoin

Pair = tuple[str, int]

SAME: Sequence[Pair] = [("key", number) for number in range(3)]
NINE = [f"key:{left}:{right}" for left in range(3) for right in range(3)]
LEFT: Sequence[Pair] = [("key0", 0), ("key1", 1), ("key2", 2), ("key2", 3)]
RIGHT: Sequence[Pair] = [("key2", 4), ("key2", 5), ("key0", 6), ("key1", 7)]


def key_of(pair: Pair) -> str:
    """A key selector."""
    return pair[0]


def is_none(pair: Pair) -> bool:
    """Drops every record."""
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
    """testInnerJoinWithSameKey, …WithWrappedJoinProcessFunction, …WithKeyedStream, …WithTuple.

    In Flink "kept", which has a key selector for the output, emits nothing.
    """

    def build(self, p: Pipeline) -> None:
        left, right = p.source(SAME), p.source(SAME)
        keyed, other = left.key_by(key_of), right.key_by(key_of)
        p.collect(keyed.connect_and_process(other, join(TextOf())), "wrapped")
        p.collect(keyed.connect_and_process(other, join(text_of)), "callable")
        kept = keyed.connect_and_process(other, join(text_of), lambda text: text.partition(":")[0])
        p.collect(kept.process(with_key), "kept")
        tuples = keyed.connect_and_process(other, join(TupleOf()))
        p.collect(tuples, "tuple")
        tuples.to_sink(ForeachBatchSink(LinesOf(p.folder / "lines")))

    def check(self, run: Run) -> None:
        for name in ("wrapped", "callable"):
            run.expect_all(*NINE, name=name)
        run.expect_all(*(("key", text) for text in NINE), name="kept")
        nine = [("key", left, right) for left in range(3) for right in range(3)]
        run.expect_all(*nine, name="tuple")
        lines = [file.read_text(encoding="utf-8").splitlines() for file in run.folder.glob("lines.*")]
        assert sorted(line for lines_of_batch in lines for line in lines_of_batch) == sorted(map(str, nine))


@dataclass(frozen=True)
class LinesOf:
    """Writes records to a file for each batch, one per line (Flink's test has a file sink)."""

    path: Path

    def __call__(self, records: list[Any], batch_id: int) -> None:
        file = self.path.with_suffix(f".{batch_id}")
        file.write_text("".join(f"{record}\n" for record in records), encoding="utf-8")


def with_key(text: str, output: Collector[tuple[Any, str]], ctx: PartitionedContext[tuple[Any, str]]) -> None:
    """Emits the key that the join has kept."""
    output.collect((ctx.state_manager.current_key, text))


class InnerJoinOfSeveralKeys(Program):
    """testInnerJoinWithMultipleKeys; testInnerJoinWhenLeftInputNoData, …RightInputNoData."""

    def build(self, p: Pipeline) -> None:
        left, right = p.source(LEFT), p.source(RIGHT)
        keyed, other = left.key_by(key_of), right.key_by(key_of)
        p.collect(keyed.connect_and_process(other, join(text_of)))
        p.collect(left.filter(is_none).key_by(key_of).connect_and_process(other, join(text_of)), "no left")
        p.collect(keyed.connect_and_process(right.filter(is_none).key_by(key_of), join(text_of)), "no right")

    def check(self, run: Run) -> None:
        run.expect_all("key0:0:6", "key1:1:7", "key2:2:4", "key2:2:5", "key2:3:4", "key2:3:5")
        run.expect(name="no left")
        run.expect(name="no right")


LEFT_ROWS: Sequence[Row] = [Row("abc"[number % 3], number, 7 * number) for number in range(16)]
RIGHT_ROWS: Sequence[Row] = [Row("bca"[number % 3], number, 5 * number) for number in range(24)]
LOWER, UPPER = -6, 9


class PairOf(JoinFunction[Any, Any, tuple[Any, Any]]):
    """Joins to a pair, with None for a missing side."""

    def process_record(self, left: Any, right: Any, output: Collector[tuple[Any, Any]], ctx: RuntimeContext) -> None:
        output.collect((left, right))


def row_key(row: Row) -> str:
    """A key selector."""
    return row.key


def row_time(row: Row) -> int:
    """An event time."""
    return row.timestamp


def rows_by_key(p: Pipeline, rows: Sequence[Row]) -> KeyedPartitionStream[str, Row]:
    """Each channel has its rows in order, so none is late, and the result is deterministic."""
    return p.source(rows).process(per_event(row_time)).key_by(row_key)


any_join: Any = join  # each of their overloads accepts one type


class IntervalJoins(Program):
    """Interval joins of every type."""

    def build(self, p: Pipeline) -> None:
        left, right = rows_by_key(p, LEFT_ROWS), rows_by_key(p, RIGHT_ROWS)
        for join_type in JoinType:
            function = any_join(PairOf(), JoinMode.interval(ms(LOWER), ms(UPPER)), join_type)
            joined: Any = left.connect_and_process(right, function).with_uid(p.uid(join_type.value))
            p.collect(joined.process(Stamped()), join_type.value)

    def check(self, run: Run) -> None:
        for join_type in JoinType:
            slow = SlowIntervalJoin(join_type.value, LOWER, UPPER)
            expected = [joined for row in LEFT_ROWS for joined in slow.take(0, row, LONG_MIN)]
            expected += [joined for row in RIGHT_ROWS for joined in slow.take(1, row, LONG_MIN)]
            expected += slow.move_to(LONG_MAX)
            assert expected
            assert "late_records_dropped" not in run.progress(join_type.value).counters
            if join_type is JoinType.SEMI:  # the first partner of a row is random
                assert alike([pair for pair, _ in run.out("semi")], [pair for pair, _ in expected])
            else:
                run.expect_all(*expected, name=join_type.value)


class IntervalJoinsByTheClock(Program):
    """Interval joins in processing time, whose bounds are longer than the job or exclude all partners."""

    BOUNDS: Mapping[str, tuple[int, int]] = {"together": (-(10**9), 10**9), "long after": (10**9, 10**9)}

    def build(self, p: Pipeline) -> None:
        left, right = (p.source(rows).key_by(row_key) for rows in (LEFT_ROWS, RIGHT_ROWS))
        for name, (lower, upper) in self.BOUNDS.items():
            function = any_join(PairOf(), JoinMode.interval(ms(lower), ms(upper), "processing"), "full")
            p.collect(left.connect_and_process(right, function), name)

    def check(self, run: Run) -> None:
        run.expect_all(*((a, b) for a in LEFT_ROWS for b in RIGHT_ROWS if a.key == b.key), name="together")
        run.expect_all(*((a, None) for a in LEFT_ROWS), *((None, b) for b in RIGHT_ROWS), name="long after")


class Both(NamedTuple):
    """The fields of a pair."""

    key: str
    left: int | None
    left_time: int | None
    right: int | None
    right_time: int | None

    def rows(self) -> tuple[Row | None, Row | None]:
        """The rows of the pair."""
        key, left, left_time, right, right_time = self
        return (
            None if left is None or left_time is None else Row(key, left, left_time),
            None if right is None or right_time is None else Row(key, right, right_time),
        )


FIELDS = {
    "left": Left("number"),
    "left_time": Left("timestamp"),
    "right": Right("number"),
    "right_time": Right("timestamp"),
}


class DeclaredJoins(Program):
    """Joins with declared results, which run on columns, over all time, in intervals and in windows."""

    MODES: Mapping[str, tuple[JoinMode, JoinType]] = {
        "all time": (JoinMode.unbounded(), JoinType.INNER),
        "interval": (JoinMode.interval(ms(LOWER), ms(UPPER)), JoinType.FULL),
        "window": (JoinMode.window(WindowStrategy.sliding(ms(20), ms(10))), JoinType.LEFT),
    }

    def build(self, p: Pipeline) -> None:
        left, right = (
            p.source(rows).process(per_event(row_time)).key_by(attrgetter("key")) for rows in (LEFT_ROWS, RIGHT_ROWS)
        )
        for name, (mode, join_type) in self.MODES.items():
            joined = left.connect_and_process(right, any_join(Both, mode, join_type, **FIELDS))
            p.collect(joined.process(Stamped()), name)

    def check(self, run: Run) -> None:
        found = {name: [(both.rows(), time) for both, time in run.out(name)] for name in self.MODES}
        pairs = [(left, right) for left in LEFT_ROWS for right in RIGHT_ROWS if left.key == right.key]
        assert alike([rows for rows, _ in found["all time"]], pairs)
        slow = SlowIntervalJoin("full", LOWER, UPPER)
        expected = [joined for row in LEFT_ROWS for joined in slow.take(0, row, LONG_MIN)]
        expected += [joined for row in RIGHT_ROWS for joined in slow.take(1, row, LONG_MIN)]
        assert alike(found["interval"], expected + slow.move_to(LONG_MAX))
        assert alike(
            found["window"], results_at_the_end(SlowWindowJoin("left", WindowStrategy.sliding(ms(20), ms(10))))
        )


class WindowJoins(Program):
    """Window joins of every type in sliding windows, and an inner one in sessions."""

    SLIDING = WindowStrategy.sliding(ms(20), ms(10))
    SESSION = WindowStrategy.session(ms(8))

    def build(self, p: Pipeline) -> None:
        left, right = rows_by_key(p, LEFT_ROWS), rows_by_key(p, RIGHT_ROWS)
        for join_type in JoinType:
            function = any_join(PairOf(), JoinMode.window(self.SLIDING), join_type)
            p.collect(left.connect_and_process(right, function).process(Stamped()), join_type.value)
        function = any_join(PairOf(), JoinMode.window(self.SESSION))
        p.collect(left.connect_and_process(right, function).process(Stamped()), "session")

    def check(self, run: Run) -> None:
        for join_type in JoinType:
            slow = SlowWindowJoin(join_type.value, self.SLIDING)
            run.expect_all(*results_at_the_end(slow), name=join_type.value)
        run.expect_all(*results_at_the_end(SlowWindowJoin("inner", self.SESSION)), name="session")


class VersionedJoins(Program):
    """Joins with the version at the time of the left record, of a function and declared."""

    TYPES = ("inner", "left")

    def build(self, p: Pipeline) -> None:
        left, right = (
            p.source(rows).process(per_event(row_time)).key_by(attrgetter("key")) for rows in (LEFT_ROWS, RIGHT_ROWS)
        )
        for name in self.TYPES:
            function = any_join(PairOf(), JoinMode.versioned(), name, is_deletion=is_third)
            joined: Any = left.connect_and_process(right, function).with_uid(p.uid(name))
            p.collect(joined.process(Stamped()), name)
            declared = left.connect_and_process(right, any_join(Both, JoinMode.versioned(), name, **FIELDS))
            p.collect(declared.process(Stamped()), f"{name} declared")

    def check(self, run: Run) -> None:
        for name in self.TYPES:
            slow = SlowVersionedJoin(name)
            for side, rows in enumerate((LEFT_ROWS, RIGHT_ROWS)):
                for row in rows:
                    slow.take(side, row._replace(number=-1) if side and is_third(row) else row)
            run.expect_all(*slow.move_to(LONG_MAX), name=name)
            slow = SlowVersionedJoin(name)
            for side, rows in enumerate((LEFT_ROWS, RIGHT_ROWS)):
                for row in rows:
                    slow.take(side, row)
            found = [(both.rows(), time) for both, time in run.out(f"{name} declared")]
            assert alike(found, slow.move_to(LONG_MAX))
            assert "late_records_dropped" not in run.progress(name).counters


def is_third(row: Row) -> bool:
    """True if a version is a deletion."""
    return row.number % 3 == 2


class RunningWindowJoins(Program):
    """Running window joins of every type, whose results are those of window joins."""

    def build(self, p: Pipeline) -> None:
        left, right = rows_by_key(p, LEFT_ROWS), rows_by_key(p, RIGHT_ROWS)
        for join_type in JoinType:
            function = any_join(PairOf(), JoinMode.window(WindowJoins.SLIDING, running=True), join_type)
            p.collect(left.connect_and_process(right, function), join_type.value)

    def check(self, run: Run) -> None:
        for join_type in JoinType:
            slow = SlowWindowJoin(join_type.value, WindowJoins.SLIDING)
            run.expect_all(*(pair for pair, _ in results_at_the_end(slow)), name=join_type.value)


def results_at_the_end(slow: SlowWindowJoin) -> list[Joined]:
    """The results of all rows and of the end."""
    for side, rows in enumerate((LEFT_ROWS, RIGHT_ROWS)):
        for row in rows:
            assert not slow.take(side, row)
    results = slow.move_to(LONG_MAX)
    assert results
    return results


PROGRAMS: tuple[Program, ...] = (
    InnerJoins(),
    InnerJoinOfSeveralKeys(),
    IntervalJoins(),
    IntervalJoinsByTheClock(),
    WindowJoins(),
    RunningWindowJoins(),
    DeclaredJoins(),
    VersionedJoins(),
)
