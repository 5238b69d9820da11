"""The contents of windows and joins in a savepoint, as tables."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Key, Last, Mean, WindowStart
from dsv2.cli import main
from dsv2.errors import ConfigurationError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, join
from dsv2.extension.window import CountEvictor, WindowAssigner, WindowStrategy
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.state import aggregate_of
from dsv2.testing import ManualClock, Stop, TestSource
from tests.durations import ms
from tests.windows import StatefulWindowRecorder, TwoInputWindowRecorder, WindowRecorder


class Trade(NamedTuple):
    symbol: str
    time: int


TRADES = [Trade("a", 1), Trade("b", 3), Trade("a", 12), Trade("a", 15)]
A1, B3, A12, A15 = ({"symbol": trade.symbol, "time": trade.time} for trade in TRADES)
any_join: Any = join
Build = Callable[[Any, Any], Any]


def symbol_of(trade: Trade) -> str:
    return trade.symbol


def savepoint_of(build: Build, path: Path, trades: list[Trade] = TRADES, select: Any = symbol_of) -> Savepoint:
    """Stop a job after ``trades``. ``build`` gets its keyed stream twice, for functions on two inputs."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[1], clock=ManualClock()))
    stamps = EventTimeExtension.new_watermark_generator_builder(symbol_time).per_event_watermark()
    stream: Any = env.from_source(TestSource[Any]([*trades, Stop(), Trade("a", 99)])).with_uid("trades")
    timed = stream.process(stamps.with_max_out_of_order_time(ms(1000)).build_as_process_function()).with_uid("timed")
    keyed = timed.key_by(select)
    build(keyed, keyed).with_uid("f").with_parallelism(2).to_sink(CollectSink()).with_uid("out")
    job = env.execute_async("contents")
    job.await_termination()
    return Savepoint.open(job.savepoint(path))


def symbol_time(trade: Trade) -> int:
    return trade.time


def of_windows(strategy: WindowStrategy, function: Any, method: str = "process") -> Build:
    return lambda first, second: getattr(first.window(strategy), method)(function)


def rows_of(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_arrow().to_pylist()
    assert all(row.pop("subtask") in (0, 1) for row in rows)
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


class Twenty(WindowAssigner[Any]):
    """The first 20 ms."""

    def assign_windows(self, record: Any, timestamp: int) -> list[tuple[int, int]]:
        return [(0, 20)]


COUNT: Any = aggregate_of(lambda: 0, lambda trade, count: count + 1, lambda count: count, merge=lambda a, b: a + b)
DETAIL: Any = aggregate_of(
    lambda: {"n": [0]}, lambda trade, found: {"n": [*found["n"], trade.time]}, lambda found: found["n"]
)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (of_windows(WindowStrategy.tumbling(ms(10)), WindowRecorder()),
         [("a", 0, None, A1), ("a", 10, None, A12), ("a", 10, None, A15), ("b", 0, None, B3)]),
        (of_windows(WindowStrategy.tumbling(ms(10)), COUNT, "aggregate"),
         [("a", 0, None, 1), ("a", 10, None, 2), ("b", 0, None, 1)]),
        (of_windows(WindowStrategy.tumbling(ms(10)), DETAIL, "aggregate"),
         [("a", 0, None, [("n", [0, 1])]), ("a", 10, None, [("n", [0, 12, 15])]), ("b", 0, None, [("n", [0, 3])])]),
        (of_windows(WindowStrategy.session(ms(5)), max, "reduce"),
         [("a", 1, 6, A1), ("a", 12, 20, A15), ("b", 3, 8, B3)]),
        (of_windows(WindowStrategy.assigned_by(Twenty()), WindowRecorder()),
         [("a", 0, 20, A12), ("a", 0, 20, A15), ("a", 0, 20, A1), ("b", 0, 20, B3)]),
        (of_windows(WindowStrategy.tumbling(ms(20)).with_evictor(CountEvictor(1)), WindowRecorder()),
         [("a", 0, None, A12), ("a", 0, None, A15), ("a", 0, None, A1), ("b", 0, None, B3)]),
        (of_windows(WindowStrategy.count(2), WindowRecorder()), [("a", 0, None, A15), ("b", 0, None, B3)]),
        (of_windows(WindowStrategy.global_(), COUNT, "aggregate"), [("a", -1, None, 3), ("b", -1, None, 1)]),
    ],
    ids=["records", "accumulators", "dicts", "sessions", "assigned", "evicted", "count", "global"],
)  # fmt: skip
def test_contents_of_windows(tmp_path: Path, build: Build, expected: list[tuple[Any, ...]]) -> None:
    rows = rows_of(savepoint_of(build, tmp_path).contents("f"))
    assert rows == [dict(zip(("key", "window", "end", "value"), row, strict=True)) for row in expected]


class Summary(NamedTuple):
    symbol: str
    start: int
    last: int
    mean: float


@pytest.mark.parametrize("select", [symbol_of, attrgetter("symbol")])
def test_contents_of_declared_aggregates(tmp_path: Path, select: Any) -> None:
    """They have the sums and counts of means, and neither keys nor bounds."""
    parts = {"symbol": Key(), "start": WindowStart(), "last": Last("time"), "mean": Mean("time")}

    def build(keyed: Any, _: Any) -> Any:
        return keyed.window(WindowStrategy.tumbling(ms(10))).aggregate(Summary, Trade, **parts)

    rows = rows_of(savepoint_of(build, tmp_path, select=select).contents("f"))
    assert [(row["key"], row["window"], row["value"]) for row in rows] == [
        ("a", 0, {"last": 1, "mean__sum": 1, "mean__count": 1}),
        ("a", 10, {"last": 15, "mean__sum": 27, "mean__count": 2}),
        ("b", 0, {"last": 3, "mean__sum": 3, "mean__count": 1}),
    ]


def test_contents_of_windows_of_two_inputs(tmp_path: Path) -> None:
    strategy = WindowStrategy.tumbling(ms(10))
    build = lambda first, second: first.window(strategy).connect_and_process(second, TwoInputWindowRecorder())  # noqa: E731
    rows = rows_of(savepoint_of(build, tmp_path, TRADES[:2]).contents("f"))
    assert [(row["key"], row["window"], row["side"], row["value"]) for row in rows] == [
        ("a", 0, "first", A1),
        ("a", 0, "second", A1),
        ("b", 0, "first", B3),
        ("b", 0, "second", B3),
    ]


def test_states_of_windows(tmp_path: Path) -> None:
    savepoint = savepoint_of(of_windows(WindowStrategy.tumbling(ms(10)), StatefulWindowRecorder(True)), tmp_path)
    assert savepoint.operators["f"] == ()
    assert rows_of(savepoint.state("f", "records")) == [
        {"key": "a", "window": 0, "value": [A1]},
        {"key": "a", "window": 10, "value": [A12, A15]},
        {"key": "b", "window": 0, "value": [B3]},
    ]


def test_buffered_rows_of_an_interval_join(tmp_path: Path) -> None:
    build = lambda one, other: one.connect_and_process(other, any_join(pair, JoinMode.interval(ms(-5), ms(3))))  # noqa: E731
    rows = rows_of(savepoint_of(build, tmp_path).contents("f"))
    of_both = [("a", 1, A1), ("a", 12, A12), ("a", 15, A15), ("b", 3, B3)]
    assert rows == sorted(
        (
            {"key": key, "side": side, "timestamp": time, "value": value}
            for side in ("first", "second")
            for key, time, value in of_both
        ),
        key=lambda row: [str(value) for value in row.values()],
    )


def pair(left: Any, right: Any, output: Any, ctx: Any) -> None:
    output.collect((left, right))


def test_rows_of_a_temporal_join(tmp_path: Path) -> None:
    build = lambda one, other: one.connect_and_process(other, any_join(pair, JoinMode.temporal()))  # noqa: E731
    rows = rows_of(savepoint_of(build, tmp_path).contents("f"))
    assert [(row["key"], row["side"], row["timestamp"], row["value"]) for row in rows] == [
        ("a", "first", 1, A1),
        ("a", "first", 12, A12),
        ("a", "first", 15, A15),
        ("a", "second", None, A15),
        ("b", "first", 3, B3),
        ("b", "second", None, B3),
    ]


@pytest.mark.parametrize(
    ("function", "state"),
    [
        (any_join(pair, JoinMode.temporal(), row_key=symbol_time), "rows"),
        (any_join(pair, JoinMode.versioned()), "versions"),
        (any_join(pair, JoinMode.versioned()), "waiting"),
    ],
)
def test_states_of_temporal_and_versioned_joins(function: Any, state: str, tmp_path: Path) -> None:
    savepoint = savepoint_of(lambda one, other: one.connect_and_process(other, function), tmp_path)
    assert {row["key"] for row in rows_of(savepoint.state("f", state))} == {"a", "b"}


def test_other_operators_have_no_contents(tmp_path: Path) -> None:
    build = lambda one, other: one.connect_and_process(other, join(pair))  # noqa: E731
    savepoint = savepoint_of(build, tmp_path)
    for uid in ("f", "timed"):
        with pytest.raises(ConfigurationError, match=f"Operator '{uid}' has neither windows nor a join that buffers"):
            savepoint.contents(uid)
    with pytest.raises(ConfigurationError, match="has no operator 'g'"):
        savepoint.contents("g")


def test_contents_without_rows(tmp_path: Path) -> None:
    savepoint = savepoint_of(of_windows(WindowStrategy.tumbling(ms(10)), WindowRecorder()), tmp_path, [])
    assert savepoint.contents("f").to_arrow().num_rows == 0


def test_values_without_a_column_type_are_bytes(tmp_path: Path) -> None:
    function: Any = aggregate_of(lambda: {1: None}, lambda trade, found: found, lambda found: found)
    savepoint = savepoint_of(of_windows(WindowStrategy.global_(), function, "aggregate"), tmp_path)
    assert savepoint.contents("f").to_arrow().column_names == ["subtask", "key", "window", "end", "value_bytes"]


def test_contents_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = savepoint_of(of_windows(WindowStrategy.tumbling(ms(10)), COUNT, "aggregate"), tmp_path / "s").path
    assert main(["state", "show", path, "f"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "subtask  key  window  end  value"
    assert main(["state", "export", path, "f", f"{tmp_path}/f.csv"]) == 0
    assert len((tmp_path / "f.csv").read_text().splitlines()) == 4
