"""Savepoints of local jobs: taken where a job stops, and continued by the same or another program."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, JobHandle, JobStatus, Trigger
from dsv2.base.folders import LocalFolder
from dsv2.checks.json_documents import from_json, to_json
from dsv2.errors import ConfigurationError, DroppedStateWarning, IncompatibleCheckpointError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink, ParallelSink, SinkBatch
from dsv2.state import RedistributionStrategy, StateDeclarations, StateTtl
from dsv2.testing import ManualClock, Stop, TestSource
from tests.durations import ms
from tests.profiles import nightly
from tests.support import wait_until
from tests.windows import WindowRecorder

COUNT = StateDeclarations.value_state("count", int, default=0)
SEEN = StateDeclarations.list_state_builder("seen", int).redistribute_by(RedistributionStrategy.SPLIT).build()
RECORDS = [number * 7 % 50 for number in range(300)]


class Counting(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Counts each key, with a timer for each and a list for each subtask."""

    def uses_states(self) -> Any:
        return [COUNT, SEEN]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        state = ctx.state_manager.get_state(COUNT)
        state.update(state.value() + 1)
        ctx.state_manager.get_state(SEEN).add(record)
        ctx.processing_time_manager.register_timer(1000)
        output.collect((record % 10, state.value()))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect((ctx.state_manager.current_key, -timestamp))


class Program:
    """A job that is stopped and continued. ``describe`` builds the pipeline between the source and the sink."""

    def __init__(self, records: Iterable[Any], build: Callable[[Any, int], Any]) -> None:
        self._records = list(records)
        self._build = build
        self.results: list[Any] = []

    def run(
        self,
        *,
        stop: int | None = None,
        start: Path | str | None = None,
        parallelism: int = 2,
        source_parallelism: int = 1,
        seed: int = 0,
        allow_dropped_state: bool = False,
    ) -> JobHandle:
        """Run until ``stop`` records have been read (None: all), and add to ``results``."""
        items = self._records if stop is None else [*self._records[:stop], Stop(), *self._records[stop:]]
        env = ExecutionEnvironment.get_instance(LocalRuntime(seed=seed, batches=[7], clock=ManualClock()))
        sink = CollectSink[Any]()
        stream = env.from_source(TestSource[Any](items), "in").with_uid("in").with_parallelism(source_parallelism)
        self._build(stream, parallelism).to_sink(sink).with_uid("out")
        job = env.execute_async("local", savepoint=start, allow_dropped_state=allow_dropped_state)
        job.await_termination()
        self.results += sink.results
        return job


def counting(stream: Any, parallelism: int) -> Any:
    return stream.key_by(lambda number: number % 10).process(Counting()).with_uid("f").with_parallelism(parallelism)


HELD = StateDeclarations.value_state("held", int)


class Holding(OneInputStreamProcessFunction[int, int]):
    def uses_states(self) -> Any:
        return [HELD]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        ctx.state_manager.get_state(HELD).update(record)


def holding(stream: Any, parallelism: int) -> Any:
    return stream.key_by(lambda number: number).process(Holding()).with_uid("f").with_parallelism(parallelism)


def windows(stream: Any, parallelism: int) -> Any:
    generator = EventTimeExtension.new_watermark_generator_builder(abs).per_event_watermark()
    timed = stream.process(generator.build_as_process_function()).with_uid("g").with_parallelism(parallelism)
    windowed = (
        timed.key_by(lambda number: number % 10).window(WindowStrategy.tumbling(ms(20))).process(WindowRecorder())
    )
    return windowed.with_uid("f").with_parallelism(parallelism)


@pytest.mark.parametrize("seed", [0, *nightly(1, 2)])
@pytest.mark.parametrize("parallelism", [(2, 2), (2, 3), (3, 1), (1, 4)])
@pytest.mark.parametrize("sources", [(1, 1), (2, 3)])
def test_job_continues_from_its_savepoint(
    tmp_path: Path, seed: int, parallelism: tuple[int, int], sources: tuple[int, int]
) -> None:
    steady, moved = Program(RECORDS, counting), Program(RECORDS, counting)
    steady.run()
    stops = (0, 20, 111, 300)
    for number, stop in enumerate(stops):
        job = moved.run(
            stop=stop,
            start=tmp_path / str(number - 1) if number else None,
            parallelism=parallelism[number % 2],
            source_parallelism=sources[number % 2],
            seed=seed,
        )
        assert job.status is JobStatus.STOPPED
        assert job.savepoint(tmp_path / str(number)) == str(tmp_path / str(number))
    moved.run(start=tmp_path / str(len(stops) - 1), parallelism=3)
    assert Counter(moved.results) == Counter(steady.results)


def test_windows_continue_from_a_savepoint(tmp_path: Path) -> None:
    steady, moved = Program(range(300), windows), Program(range(300), windows)
    steady.run()
    moved.run(stop=105).savepoint(tmp_path / "a")
    moved.run(start=tmp_path / "a", parallelism=3, stop=200).savepoint(tmp_path / "b")
    moved.run(start=tmp_path / "b", parallelism=1)
    assert Counter(moved.results) == Counter(steady.results)


def test_state_is_readable_as_tables(tmp_path: Path) -> None:
    Program(RECORDS, counting).run(stop=100).savepoint(tmp_path / "a")
    savepoint = Savepoint.open(tmp_path / "a")
    savepoint.verify()
    assert savepoint.operators == {"f": ("count", "seen"), "in": ()}
    assert savepoint.positions == {"in": {"position": 100}}
    assert savepoint.origin.job_name == "local"
    counts = savepoint.state("f", "count").to_pandas()
    assert dict(zip(counts["key"], counts["value"], strict=True)) == dict.fromkeys(range(10), 10)
    seen = savepoint.state("f", "seen").to_arrow().to_pydict()
    assert sorted(number for numbers in seen["value"] for number in numbers) == sorted(RECORDS[:100])
    timers = savepoint.timers("f").to_arrow().to_pydict()
    assert sorted(timers["key"]) == list(range(10))
    assert timers["value"] == [[1000]] * 10
    with pytest.raises(ConfigurationError, match=r"Operator 'f' has no state 'sum'\. It has: 'count', 'seen'"):
        savepoint.state("f", "sum")
    with pytest.raises(ConfigurationError, match=r"has no operator 'g'\. It has: 'f', 'in'"):
        savepoint.timers("g")


class Expiring(OneInputStreamProcessFunction[int, int]):
    """Has states with time to live."""

    LAST = StateDeclarations.value_state("last", int, ttl=StateTtl(ms(50)))
    BY_PARITY = StateDeclarations.map_state("by parity", str, int, ttl=StateTtl(ms(50)))
    ALL = StateDeclarations.list_state("all", int, ttl=StateTtl(ms(50)))

    def uses_states(self) -> Any:
        return [self.LAST, self.BY_PARITY, self.ALL]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        states = ctx.state_manager
        states.get_state(self.LAST).update(record)
        states.get_state(self.BY_PARITY).put("odd" if record % 2 else "even", record)
        states.get_state(self.ALL).add(record)


def test_tables_of_states_with_time_to_live_have_plain_values(tmp_path: Path) -> None:
    def expiring(stream: Any, parallelism: int) -> Any:
        return stream.key_by(lambda number: number // 10).process(Expiring()).with_uid("f")

    Program(range(20), expiring).run(stop=12).savepoint(tmp_path / "a")
    savepoint = Savepoint.open(tmp_path / "a")
    assert repr(savepoint) == f"<savepoint of 'local' after micro-batch 1: {tmp_path / 'a'}>"
    assert repr(savepoint.state("f", "last")) == "<state 'last' of 'f'>"
    tables = [savepoint.state("f", name).to_arrow() for name in ("last", "by parity", "all")]
    last, by_parity, everything = (dict(zip(*map(table.column, ("key", "value")), strict=True)) for table in tables)
    assert {key.as_py(): value.as_py() for key, value in last.items()} == {0: 9, 1: 11}
    assert {key.as_py(): dict(value.as_py()) for key, value in by_parity.items()} == {
        0: {"even": 8, "odd": 9},
        1: {"even": 10, "odd": 11},
    }
    assert {key.as_py(): value.as_py() for key, value in everything.items()} == {0: [*range(10)], 1: [10, 11]}


def test_empty_state_is_an_empty_table(tmp_path: Path) -> None:
    Program(RECORDS, counting).run(stop=0).savepoint(tmp_path / "a")
    table = Savepoint.open(tmp_path / "a").state("f", "count")
    assert table.path is None
    assert table.to_arrow().num_rows == 0


def test_job_that_has_ended_has_no_savepoint(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has reached the end of its input"):
        Program(RECORDS, counting).run().stop_with_savepoint(tmp_path / "a")


def test_savepoint_needs_a_folder_of_its_own(tmp_path: Path) -> None:
    job = Program(RECORDS, counting).run(stop=5)
    job.savepoint(tmp_path / "a")
    with pytest.raises(ConfigurationError, match="is not empty"):
        job.savepoint(tmp_path / "a")


def test_savepoint_cannot_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(ConfigurationError, match=r"/a is no folder, because .*/a is a file"):
        Program(RECORDS, counting).run(stop=5).savepoint(tmp_path / "a")


def test_path_may_be_a_uri(tmp_path: Path) -> None:
    job = Program(RECORDS, counting).run(stop=5)
    assert job.savepoint(f"file:{tmp_path}/a b") == f"{tmp_path}/a b"
    assert Savepoint.open(f"file://{tmp_path}/a b").positions == {"in": {"position": 5}}
    Program(RECORDS, counting).run(start=f"file:///{tmp_path}/a b", stop=6)
    for refused in (
        lambda: job.savepoint("s3://jobs/a"),
        lambda: Program(RECORDS, counting).run(start="s3a://jobs/a"),
        lambda: Savepoint.open("hdfs:/jobs/a"),
    ):
        with pytest.raises(ConfigurationError, match=r"jobs/a is not on the local disk\. (The local|Open it with)"):
            refused()


def test_integers_are_not_rounded_in_pandas(tmp_path: Path) -> None:
    number = 2**53 + 1
    Program([number, 1 << 70], holding).run(stop=2).savepoint(tmp_path / "a")
    values = Savepoint.open(tmp_path / "a").state("f", "held").to_pandas()["value"].tolist()
    assert sorted(values, key=str) == [number, None]


def test_start_from_something_else_is_refused_before_anything_runs(tmp_path: Path) -> None:
    program = Program(RECORDS, counting)
    with pytest.raises(ConfigurationError, match="is not a savepoint"):
        program.run(start=tmp_path)
    assert program.results == []


def test_dropped_states_do_not_come_back(tmp_path: Path) -> None:
    def forgetting(stream: Any, parallelism: int) -> Any:
        class Forgets(Counting):
            def uses_states(self) -> Any:
                return []

            def process_record(self, record: int, output: Any, ctx: Any) -> None:
                pass

        return stream.key_by(lambda number: number % 10).process(Forgets()).with_uid("f").with_parallelism(parallelism)

    Program(RECORDS, counting).run(stop=10).savepoint(tmp_path / "a")
    with pytest.warns(DroppedStateWarning, match="holds the state 'count', the state 'seen'"):
        without = Program(RECORDS, forgetting).run(stop=20, start=tmp_path / "a", allow_dropped_state=True)
    without.savepoint(tmp_path / "b")
    Program(RECORDS, counting).run(stop=30, start=tmp_path / "b").savepoint(tmp_path / "c")
    savepoint = Savepoint.open(tmp_path / "c")
    assert sum(savepoint.state("f", "count").to_arrow()["value"].to_pylist()) == 10
    seen = savepoint.state("f", "seen").to_arrow()["value"].to_pylist()
    assert sorted(number for numbers in seen for number in numbers) == sorted(RECORDS[20:30])


class Total(OneInputStreamProcessFunction[int, int]):
    """Adds up all records in a field."""

    def __init__(self) -> None:
        self.total = 0

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.total += record
        output.collect(self.total)


class NoTotal(OneInputStreamProcessFunction[int, int]):
    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        pass


def test_dropped_fields_do_not_come_back(tmp_path: Path) -> None:
    def with_function(function: Any) -> Callable[[Any, int], Any]:
        return lambda stream, parallelism: stream.process(function()).with_uid("f").with_parallelism(parallelism)

    Program(range(9), with_function(Total)).run(stop=3, parallelism=1).savepoint(tmp_path / "a")
    without = Program(range(9), with_function(NoTotal))
    with pytest.warns(DroppedStateWarning, match="the field 'total' of its function"):
        job = without.run(stop=6, parallelism=1, start=tmp_path / "a", allow_dropped_state=True)
    job.savepoint(tmp_path / "b")
    again = Program(range(9), with_function(Total))
    again.run(parallelism=1, start=tmp_path / "b")
    assert again.results == [6, 13, 21]


def test_key_that_a_sample_shows_to_have_changed_is_refused(tmp_path: Path) -> None:
    Program(RECORDS, counting).run(stop=5).savepoint(tmp_path / "a")
    folder = LocalFolder(str(tmp_path / "a"))
    entry = from_json(folder.read("savepoint.json"))
    record = b64encode(Codec(TypeRegistry()).dumps(13)).decode()
    sample = {"key_of": "f", "input": 0, "record": record, "hash": stable_hash(3), "key": "3"}
    folder.write("savepoint.json", to_json(entry | {"keys": [sample]}))
    Program(RECORDS, counting).run(start=tmp_path / "a", stop=6)
    folder.write("savepoint.json", to_json(entry | {"keys": [sample | {"hash": stable_hash(4), "key": "4"}]}))
    with pytest.raises(IncompatibleCheckpointError, match=r"for 13 it returned 4, and now it returns 3"):
        Program(RECORDS, counting).run(start=tmp_path / "a")


def test_open_windows_without_keys_stay_in_their_subtasks(tmp_path: Path) -> None:
    def windows_of_all(stream: Any, parallelism: int) -> Any:
        windowed = stream.shuffle().window(WindowStrategy.global_()).process(WindowRecorder()).with_uid("f")
        return windowed.with_parallelism(parallelism)

    Program(range(40), windows_of_all).run(stop=20, parallelism=2).savepoint(tmp_path / "a")
    more = Program(range(40), windows_of_all)
    more.run(start=tmp_path / "a", parallelism=3)
    fired = [records for kind, *_, records in more.results if kind == "trigger"]
    assert sorted(record for records in fired for record in records) == list(range(40))
    with pytest.raises(IncompatibleCheckpointError, match=r"subtask 1 has open windows.*with_parallelism\(2\) or more"):
        Program(range(40), windows_of_all).run(start=tmp_path / "a", parallelism=1)


def test_batch_jobs_do_not_start_from_savepoints(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_execution_mode("batch")
    env.from_collection([1]).to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match="BATCH job has no state to restore"):
        env.execute(savepoint=tmp_path, trigger=Trigger.available_now())


class Ends(OneInputStreamProcessFunction[Any, str]):
    """Emits nothing but the end of its input."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        pass

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect("end"))


@pytest.mark.parametrize("chained", [True, False])
def test_new_operator_learns_that_its_input_has_ended(tmp_path: Path, chained: bool) -> None:
    def run(*, with_new: bool, stop: bool, start: Path | None = None) -> tuple[JobHandle, list[Any]]:
        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2]))
        sink = CollectSink[Any]()
        items = [*range(20), Stop()] if stop else [*range(20)]
        env.from_source(TestSource[Any](items)).with_uid("in").to_sink(CollectSink()).with_uid("numbers")
        ended: Any = env.from_collection([1, 2]).with_uid("short").shuffle().process(Ends()).with_uid("a")
        if with_new:
            ended = (ended if chained else ended.shuffle()).process(Ends()).with_uid("b")
            ended.with_parallelism(1 if chained else 2)
        ended.to_sink(sink).with_uid("out")
        job = env.execute_async("ends", savepoint=start)
        job.await_termination()
        return job, sink.results

    job, results = run(with_new=False, stop=True)
    assert results == ["end"]
    job.savepoint(tmp_path / "a")
    job, results = run(with_new=True, stop=False, start=tmp_path / "a")
    assert job.status is JobStatus.FINISHED
    assert results == (["end"] if chained else ["end"] * 2)


def test_failed_job_has_no_savepoint(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    numbers: Any = env.from_collection([1, 0]).flat_map(lambda number: [1 // number])
    numbers.to_sink(CollectSink())
    job = env.execute_async("failing")
    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as failed:
        job.savepoint(tmp_path / "a")
    assert failed.value.record == "0"


def test_operator_that_has_ended_gets_no_new_input(tmp_path: Path) -> None:
    def run(uid: str, start: Path | None = None) -> JobHandle:
        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2]))
        env.from_source(TestSource[Any]([*range(20), Stop()])).with_uid("in").to_sink(CollectSink()).with_uid("numbers")
        short: Any = env.from_collection([1, 2]).with_uid(uid).shuffle().process(Ends()).with_uid("a")
        short.to_sink(CollectSink()).with_uid("out")
        job = env.execute_async("ends", savepoint=start, allow_dropped_state=True)
        job.await_termination()
        return job

    run("short").savepoint(tmp_path / "a")
    ended = pytest.raises(
        IncompatibleCheckpointError, match=r"uid 'a'.*has received the end of its input 0.*other uids"
    )
    with pytest.warns(DroppedStateWarning, match="'short'"), ended:
        run("another", tmp_path / "a")


class Ledger(ParallelSink[int]):
    exactly_once = True

    def describe_target(self) -> str:
        return "the ledger"

    def write(self, batch: SinkBatch[int]) -> None:
        list(batch.batches)


def test_savepoint_tells_what_each_sink_has_written(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2]))
    numbers = env.from_source(TestSource[int]([1, 2, 3, Stop(), 4])).with_uid("in")
    numbers.to_sink(Ledger()).with_uid("ledger")
    numbers.to_sink(CollectSink()).with_uid("list")
    job = env.execute_async("sinks")
    wait_until(lambda: job.progress.batch_id == 1)  # before the stop
    savepoint = Savepoint.open(job.savepoint(tmp_path / "s"))
    of_job = {"job_id": savepoint.origin.job_id, "batch_id": 1, "folder": ""}
    assert {uid: asdict(sink) for uid, sink in savepoint.sinks.items()} == {
        "ledger": {"kind": f"{__name__}.Ledger", "target": "the ledger", "exactly_once": True, **of_job},
        "list": {"kind": "dsv2.sinks.sink.CollectSink", "target": "", "exactly_once": False, **of_job},
    }
