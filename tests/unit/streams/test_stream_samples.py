"""``take``, ``show`` and ``to_pandas``: what flows at a point of a pipeline, without changing it."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from dsv2 import (
    Collector,
    CollectSink,
    ErrorPolicy,
    ExecutionEnvironment,
    OutputTag,
    PartitionedContext,
    PrintSink,
    Resource,
    RuntimeExecutionMode,
    TwoOutputPartitionedContext,
)
from dsv2.base.record_table import RecordTable
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.errors import ConfigurationError, PlanError, UserFunctionError
from dsv2.functions import (
    AsyncOneInputStreamProcessFunction,
    OneInputStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.local import sample
from dsv2.sources import DataGeneratorSource
from dsv2.testing import Pause, Stop, TestSource
from tests.durations import ms


class Sale(NamedTuple):
    day: int
    amount: int


@dataclass
class Total:
    day: int
    total: int


class DailyTotal(OneInputStreamProcessFunction[Sale, Total]):
    def __init__(self) -> None:
        self.totals: dict[int, int] = {}

    def process_record(self, record: Sale, output: Collector[Total], ctx: PartitionedContext[Total]) -> None:
        self.totals[record.day] = self.totals.get(record.day, 0) + record.amount
        output.collect(Total(record.day, self.totals[record.day]))


class Halves(TwoOutputStreamProcessFunction[Sale, int, str]):
    def process_record(
        self, record: Sale, first: Collector[int], second: Collector[str], ctx: TwoOutputPartitionedContext[int, str]
    ) -> None:
        first.collect(record.amount)
        second.collect(f"day {record.day}")


SALES = [Sale(day, 10 * day + number) for day in range(3) for number in range(4)]


def environment(parallelism: int = 1) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(parallelism)
    return env


def test_take_returns_the_first_records_at_any_point() -> None:
    sales = environment().from_collection(SALES)
    assert sales.take(2) == SALES[:2]
    assert sales.take(100) == SALES
    assert sales.map(lambda sale: sale.amount).take(3) == [0, 1, 2]
    totals = sales.process(DailyTotal())
    assert totals.take(5) == [Total(0, 0), Total(0, 1), Total(0, 3), Total(0, 6), Total(1, 10)]
    assert sales.global_().take(1) == SALES[:1]
    assert sales.broadcast().take(1) == SALES[:1]


def test_keyed_streams_and_two_outputs() -> None:
    sales = environment(parallelism=2).from_collection(SALES)
    keyed = sales.key_by(lambda sale: sale.day)
    assert sorted(keyed.take(100)) == SALES
    outputs = keyed.process(Halves())
    assert sorted(outputs.first.take(100)) == sorted(sale.amount for sale in SALES)
    assert set(outputs.second.take(100)) == {"day 0", "day 1", "day 2"}


def test_side_outputs_and_dead_letters() -> None:
    tag = OutputTag("odd", int)

    class Split(OneInputStreamProcessFunction[int, int]):
        def declare_outputs(self) -> list[OutputTag[Any]]:
            return [tag]

        def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
            if record == 4:
                raise ValueError("four")
            if record % 2:
                ctx.output(tag, record)
            else:
                output.collect(record)

    split = environment().from_collection(range(8)).process(Split())
    split.with_error_policy(ErrorPolicy().dead_letter(ValueError))
    assert split.take(10) == [0, 2, 6]
    assert split.side_output(tag).take(10) == [1, 3, 5, 7]
    assert [letter.record for letter in split.dead_letters(int).take(10)] == [4]


def test_pipeline_is_unchanged_and_runs_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    env = environment()
    totals = env.from_collection(SALES).process(DailyTotal()).with_uid("totals")
    before = str(env.explain())
    assert len(totals.take(3)) == 3
    totals.to_sink(PrintSink())
    assert capsys.readouterr().out == ""  # no sink of the pipeline has been written
    with_sink = str(env.explain())
    assert totals.take(100)[-1] == Total(2, 86)
    assert str(env.explain()) == with_sink != before
    env.execute()
    assert capsys.readouterr().out.splitlines()[-1] == str(Total(2, 86))
    with pytest.raises(PlanError, match="is part of the pipeline that was executed at"):
        totals.take(1)


class Doubled(AsyncOneInputStreamProcessFunction[int, int]):
    async def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        await asyncio.sleep(0)
        output.collect(2 * record)


def test_async_functions_also_within_the_event_loop_of_a_notebook() -> None:
    stream = environment().from_collection(range(1_000)).process(Doubled())
    assert stream.take(3) == [0, 2, 4]

    async def cell() -> list[int]:
        return stream.take(3)

    assert asyncio.run(cell()) == [0, 2, 4]
    gc.collect()  # a coroutine that was not awaited would warn


@pytest.mark.usefixtures("no_other_harnesses")
def test_resources_are_closed() -> None:
    closed: list[str] = []
    resource = Resource(lambda: "client", close=closed.append)
    assert environment().from_collection([1, 2]).map(lambda number: resource.get()).take(1) == ["client"]
    assert closed == ["client"]


def test_little_is_read_for_few_records() -> None:
    seen: list[int] = []

    def note(number: int) -> int:
        seen.append(number)
        return number

    assert environment().from_source(DataGeneratorSource(abs, count=10**9)).map(note).take(1) == [0]
    assert len(seen) < 10_000


def test_unbounded_sources_end_with_the_number_or_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = environment().from_source(DataGeneratorSource(abs))
    assert numbers.take(3) == [0, 1, 2]
    seen: list[int] = []

    def is_small(number: int) -> bool:
        seen.append(number)
        return number < 2

    monkeypatch.setattr(sample, "time", SimpleNamespace(monotonic=lambda: len(seen) / 1000))
    assert numbers.filter(is_small).take(3, timeout=ms(200)) == [0, 1]
    assert len(seen) >= 200
    monkeypatch.undo()
    slow = environment().from_source(DataGeneratorSource(abs, records_per_second=50))
    assert slow.take(2) == [0, 1]


def test_unbounded_source_without_data_does_not_wait_forever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dsv2.streams.base._SECONDS_WITHOUT_END", 0.1)
    files = FilesSource(tmp_path, text_lines(str), discovery_interval=timedelta(milliseconds=20))
    assert environment().from_source(files).take(1) == []


def test_batch_mode_and_a_source_that_stops() -> None:
    env = environment()
    env.set_execution_mode(RuntimeExecutionMode.BATCH)
    assert env.from_collection(SALES).process(DailyTotal()).take(100)[-1] == Total(2, 86)
    assert environment().from_source(TestSource[int]([1, 2, Stop(), 3])).take(5) == [1, 2]
    assert environment().from_source(TestSource[int]([1, Pause(timedelta(hours=1)), 2])).take(5) == [1, 2]


def test_function_that_blocks_is_not_waited_for_longer_than_the_limit() -> None:
    env = environment()
    env.set_callback_timeout(ms(100))
    with pytest.raises(UserFunctionError, match="did not return within 100 ms"):
        env.from_collection([1]).map(lambda number: [0 for _ in iter(int, 1)]).take(1)


def test_error_of_a_function_shows_the_users_line() -> None:
    with pytest.raises(UserFunctionError) as raised:
        environment().from_collection(SALES).map(lambda sale: 1 // sale.amount).take(3)
    assert f'File "{__file__}", line' in str(raised.value)
    assert "Sale(day=0, amount=0)" in str(raised.value)


class Frame:
    isStreaming = False  # noqa: N815 - as Spark has it


def test_sources_that_cannot_be_sampled_are_refused() -> None:
    env = environment()
    frames = env.from_dataframe(Frame(), dict)
    with pytest.raises(ConfigurationError, match=r"take at .*py:\d+ runs .* local .* The source .* only Spark can"):
        frames.take(1)
    assert env.from_collection(SALES).take(1) == SALES[:1]  # the other source is not upstream

    class Guarded(DataGeneratorSource[int]):
        dsv2_refuses_samples = "It would empty the queue."

    with pytest.raises(ConfigurationError, match=r"cannot be sampled: It would empty the queue\."):
        env.from_source(Guarded(abs)).show()


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3", True])
def test_number_of_records_is_checked(wrong: Any) -> None:
    stream = environment().from_collection(SALES)
    calls: list[Callable[[Any], object]] = [stream.take, stream.show, stream.to_pandas]
    for call in calls:
        with pytest.raises(ConfigurationError, match="n must be a whole number"):
            call(wrong)


def test_invalid_pipeline_is_refused() -> None:
    stream = environment().from_collection(SALES).with_uid("same").map(str).with_uid("same")
    with pytest.raises(ConfigurationError, match="Two operators have the uid 'same'"):
        stream.take(1)


SHOWN = """\
key  day  amount
---  ---  ------
  0    0       0
  0    0       1
only the first 2
"""


def test_show_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    keyed = environment().from_collection(SALES).key_by(lambda sale: sale.day)
    keyed.show(2)
    assert capsys.readouterr().out == SHOWN
    keyed.show()
    assert "only" not in capsys.readouterr().out


def test_show_in_a_notebook_publishes_html(monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[dict[str, str]] = []

    class Shell:
        class display_pub:  # noqa: N801 - as IPython has it
            publish = published.append

    class FakeIPython:
        @staticmethod
        def get_ipython() -> Shell:
            return Shell()

    monkeypatch.setitem(sys.modules, "IPython", FakeIPython)
    environment().from_collection(["<b>"]).show()
    (data,) = published
    assert "<td>&lt;b&gt;</td>" in data["text/html"]
    assert data["text/plain"].splitlines()[-1] == "<b>"


def test_to_pandas() -> None:
    sales = environment().from_collection(SALES)
    frame = sales.to_pandas(5)
    assert list(frame.columns) == ["day", "amount"]
    assert frame["amount"].tolist() == [0, 1, 2, 3, 10]
    assert sales.map(lambda sale: sale.day).to_pandas()["record"].tolist() == [sale.day for sale in SALES]
    assert sales.filter(lambda sale: False).to_pandas().empty


@pytest.mark.parametrize(
    ("records", "columns", "rows"),
    [
        ([], ["record"], []),
        ([1, None], ["record"], [[1], [None]]),
        ([(1, 2)], ["record"], [[(1, 2)]]),
        ([{"a": 1}, {"b": 2}], ["a", "b"], [[1, None], [None, 2]]),
        ([{1: 2}], ["1"], [[2]]),
        ([Sale(1, 2), Total(3, 4), "x"], ["day", "amount", "total", "record"], None),
    ],
)
def test_fields_are_columns(records: list[Any], columns: list[str], rows: list[list[Any]] | None) -> None:
    table = RecordTable(records)
    assert table.columns == columns
    assert rows is None or table.rows == rows
    assert all(len(row) == len(columns) for row in table.rows)
    assert table.html().count("<tr>") == 1 + len(records)


def test_long_and_unprintable_values_are_one_short_line() -> None:
    lines = str(RecordTable([{"text": "x" * 99}, {"text": "a\nb\x1b[2J"}])).splitlines()
    assert lines[2:] == ["x" * 39 + "…", r"a\nb\x1b[2J"]


def test_pandas_is_required_for_its_dataframes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match="to_pandas requires pandas: pip install pandas"):
        environment().from_collection(SALES).to_pandas()


def test_stream_that_two_functions_process() -> None:
    sales = environment().from_collection(SALES)
    both = sales.filter(lambda sale: sale.day == 0).union(sales.filter(lambda sale: sale.day == 1))
    assert sorted(both.take(100)) == [sale for sale in SALES if sale.day < 2]


class TestLaterJob:
    """A later job does not contain the operators that only ``take`` and ``show`` have used."""

    @pytest.fixture
    def env(self) -> ExecutionEnvironment:
        return ExecutionEnvironment.get_instance(runtime="local")

    def test_failed_try_does_not_fail_the_job(self, env: ExecutionEnvironment) -> None:
        numbers = env.from_collection([3, 2, 0])
        with pytest.raises(UserFunctionError):
            numbers.map(lambda n: 6 // n).filter(bool).with_uid("halves").take(10)
        right = numbers.map(lambda n: 6 // n if n else 0).with_uid("halves")
        assert right.take(10) == [2, 3, 0]
        sink = CollectSink[int]()
        right.to_sink(sink)
        env.execute()
        assert sink.results == [2, 3, 0]

    def test_only_what_leads_nowhere_is_left_out(self, env: ExecutionEnvironment) -> None:
        sales = env.from_collection(SALES, "sales")
        looked_at = sales.map(lambda sale: sale.amount).with_uid("amounts")
        looked_at.filter(bool).key_by(str).show(1)
        halves: Any = sales.process(Halves()).with_uid("halves")
        assert halves.second.take(1) == ["day 0"]
        kept: Any = looked_at.map(str).with_uid("texts")
        halves.first.to_sink(CollectSink())
        kept.to_sink(CollectSink())
        operators = env.build_plan().operators
        assert [one.uid for one in operators if one.kind.name not in ("SOURCE", "SINK")] == [
            "amounts",
            "halves",
            "texts",
        ]
        assert [one.kind.name for one in operators].count("SINK") == 2

    def test_operator_that_was_not_looked_at_runs_without_a_sink(self, env: ExecutionEnvironment) -> None:
        seen: list[int] = []
        numbers = env.from_collection([1, 2])
        numbers.map(seen.append)
        numbers.take(1)
        env.execute()
        assert seen == [1, 2]

    def test_sources_that_were_only_looked_at_do_not_count(self, env: ExecutionEnvironment) -> None:
        env.set_execution_mode("automatic")
        env.from_source(DataGeneratorSource(int)).take(1)
        env.from_collection([1]).to_sink(CollectSink())
        plan = env.build_plan()
        assert plan.mode is RuntimeExecutionMode.BATCH
        assert len(plan.operators) == 2

    def test_nothing_else(self, env: ExecutionEnvironment) -> None:
        env.from_collection([1]).map(str).take(1)
        with pytest.raises(PlanError, match="that take and show have not only looked at"):
            env.execute()

    def test_dead_letters_that_were_looked_at_are_stored_as_before(
        self, env: ExecutionEnvironment, tmp_path: Path
    ) -> None:
        inverse = env.from_collection([1, 0]).map(lambda n: 1 // n).with_error_policy(ErrorPolicy().dead_letter())
        assert len(inverse.dead_letters(int).take(5)) == 1
        inverse.to_sink(CollectSink())
        env.execute(dead_letters=tmp_path / "letters")
        assert list((tmp_path / "letters").rglob("*.json*"))

    def test_uids_are_those_of_a_program_that_looks_at_nothing(self, env: ExecutionEnvironment) -> None:
        def job(looks: bool) -> list[str]:
            numbers = env.from_collection(SALES)
            if looks:
                numbers.key_by(str).process(DailyTotal()).take(1)
            numbers.key_by(str).process(DailyTotal()).to_sink(CollectSink())
            return [one.uid for one in env.take_plan().operators]

        assert job(looks=False) == job(looks=True)
