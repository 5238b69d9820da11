"""The local runtime: interleavings, micro-batches, restarts, checks, errors, and the result of a job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby, pairwise
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, JobError, JobStatus, NonKeyedPartitionStream, RuntimeExecutionMode, Trigger
from dsv2.errors import ConfigurationError, RecordMutatedError, SerializationError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.runtime.exchange.frames import MAX_FRAME_RECORDS
from dsv2.sinks import CollectSink, ForeachBatchSink, ParallelSink, PrintSink, SinkBatch, SinkInfo
from dsv2.sources import DataFrameSource, DataGeneratorSource
from dsv2.watermark import WatermarkHandlingResult, new_builder
from tests.durations import ms
from tests.support import NoRows, local_environment, one_input, pass_on, two_inputs

NEWEST = new_builder("newest").type_long().combine_function_max().build()


def fails(*args: Any) -> Any:
    raise ValueError("on purpose")


class SumPerKey(OneInputStreamProcessFunction[int, Any]):
    """Emits the current sum of each key, and all sums with a new maximum."""

    def __init__(self) -> None:
        self.sums: dict[Any, int] = {}

    def declare_watermarks(self) -> Any:
        return [NEWEST]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        key = ctx.state_manager.current_key
        self.sums[key] = self.sums.get(key, 0) + record
        output.collect((key, self.sums[key]))
        if record % 10 == 0:
            ctx.non_partitioned_context.watermark_manager.emit_watermark(NEWEST.new_watermark(record))

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(self.emit_sums)

    def emit_sums(self, output: Any, ctx: Any) -> None:
        key = ctx.state_manager.current_key
        output.collect(("end", key, self.sums[key]))


class Newest(OneInputStreamProcessFunction[Any, Any]):
    """Emits each record with the maximum so far."""

    def __init__(self) -> None:
        self.newest = -1

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect((record, self.newest))

    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        self.newest = watermark.value
        return WatermarkHandlingResult.PEEK


def results(parallelism: int = 1, count: int = 100, **options: Any) -> list[Any]:
    """The output of a pipeline with three shuffles."""
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime(**options)), CollectSink[Any]()
    env.set_parallelism(parallelism)
    numbers = env.from_collection(range(count))
    numbers.key_by(lambda number: number % 7).process(SumPerKey()).shuffle().process(Newest()).to_sink(sink)
    env.execute()
    return sink.results


class TestInterleaving:
    def test_same_seed_gives_the_same_run(self) -> None:
        assert results(3, seed=7) == results(3, seed=7)

    def test_other_seeds_give_other_runs(self) -> None:
        assert len({repr(results(3, seed=seed)) for seed in range(5)}) > 1

    def test_order_independent_results_are_the_same_in_every_run(self) -> None:
        sums = [{record for record, _ in results(3, seed=seed) if record[0] == "end"} for seed in range(5)]
        assert sums == [{("end", key, sum(range(key, 100, 7))) for key in range(7)}] * 5

    def test_inputs_are_interleaved_either_way(self) -> None:
        def changes_of_input(seed: int) -> tuple[str, int]:
            env, sink = ExecutionEnvironment.get_instance(LocalRuntime(seed=seed)), CollectSink[str]()
            function = two_inputs(
                process_record_from_first_input=lambda record, output, ctx: output.collect("first"),
                process_record_from_second_input=lambda record, output, ctx: output.collect("second"),
            )
            numbers = env.from_collection(range(100))
            numbers.connect_and_process(env.from_collection(range(100)), function).to_sink(sink)
            env.execute()
            return sink.results[0], sum(one != other for one, other in pairwise(sink.results))

        runs = [changes_of_input(seed) for seed in range(20)]
        assert {first for first, _ in runs} == {"first", "second"}
        assert max(changes for _, changes in runs) > 3


class Forgetful(OneInputStreamProcessFunction[Any, int]):
    """Counts its records but keeps nothing."""

    count = 0

    def __getstate__(self) -> Any:
        return {}

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.count += 1
        output.collect(self.count)


@pytest.mark.parametrize(("checks", "expected"), [(False, [1, 2, 3]), (True, [1, 1, 1])])
def test_restart_creates_functions_from_their_state(checks: bool, expected: list[int]) -> None:
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime(batches=[1], checks=checks)), CollectSink[int]()
    env.from_collection(["a", "b", "c"]).process(Forgetful()).to_sink(sink)
    env.execute()
    assert sink.results == expected


def test_batch_job_has_one_batch() -> None:
    sizes: list[int] = []
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[1]))
    env.set_execution_mode(RuntimeExecutionMode.BATCH)
    env.from_collection(["a", "b", "c"]).to_sink(ForeachBatchSink(lambda records, batch_id: sizes.append(len(records))))
    assert env.execute().progress.batch_id == 0
    assert sizes == [3]


def test_batch_sizes_apply_per_source_subtask() -> None:
    batches: list[tuple[int, list[int]]] = []
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2, 1]))
    sink = ForeachBatchSink[int](lambda records, batch_id: batches.append((batch_id, sorted(records))))
    env.from_collection(range(9)).with_parallelism(2).to_sink(sink)
    result = env.execute()
    assert [records for _, records in batches if records] == [[0, 1, 2, 3], [4, 5], [6, 7], [8]]
    assert [number for number, _ in batches] == [*range(result.progress.batch_id + 1)]


# --- Sources and sinks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_empty_collection_opens_and_ends_the_job(parallelism: int) -> None:
    """Flink refuses it."""
    log: list[str] = []
    env, sink = local_environment(parallelism), CollectSink[str]()
    function = one_input(
        open=lambda ctx: log.append("open"),
        end_input=lambda ctx: ctx.apply_to_all_partitions(lambda output, ctx: output.collect("end")),
    )
    env.from_collection(list[int]()).shuffle().process(function).to_sink(sink)
    env.execute()
    assert log == ["open"] * parallelism
    assert sink.results == ["end"] * parallelism


def test_none_may_be_emitted() -> None:
    """So that a filter may follow ``map(table.get)``. Only a source refuses it."""
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime(batches=[1])), CollectSink[Any]()
    names = env.from_collection(["a", "b", "c"]).map({"a": 1, "c": 3}.get)
    names.key_by(str).process(one_input(process_record=pass_on)).to_sink(sink)
    names.filter(lambda record: record is not None).to_sink(found := CollectSink[Any]())
    env.execute()
    assert sink.results == [1, None, 3]
    assert found.results == [1, 3]


class Calls(ParallelSink[int]):
    """Keeps its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        self.calls.append((info.uid, info.parallelism, batch_id))

    def write(self, batch: SinkBatch[int]) -> None:
        records = [(record, run.timestamps) for run in batch.batches for record in run.records]
        self.calls.append((batch.batch_id, batch.subtask, records))


def test_parallel_sinks_are_called_per_subtask_with_records() -> None:
    calls = Calls()
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2, 1]))
    env.set_parallelism(2)
    numbers = env.from_source(DataGeneratorSource(lambda index: index, count=7)).filter(lambda number: number != 4)
    numbers.to_sink(calls).with_uid("calls")
    env.execute()
    assert calls.calls[0] == ("calls", 2, 0)
    assert calls.calls[1:] == [
        (0, 0, [(0, None), (2, None)]),
        (0, 1, [(1, None), (3, None)]),
        (1, 1, [(5, None)]),
        (2, 0, [(6, None)]),
    ]


# --- Failures --------------------------------------------------------------------------------------------------------


def numbers_in(env: ExecutionEnvironment, **options: Any) -> NonKeyedPartitionStream[int]:
    return env.from_source(DataGeneratorSource(lambda index: index, **options))


def test_failure_is_raised_by_execute_and_kept_by_the_handle() -> None:
    env = local_environment()
    numbers_in(env, count=3).process(one_input(process_record=fails)).to_sink(CollectSink())
    job = env.execute_async()
    with pytest.raises(UserFunctionError):
        job.await_termination()
    assert job.status is JobStatus.FAILED
    assert isinstance(job.exception(), UserFunctionError)
    for raising in (job.result, job.await_termination):
        with pytest.raises(UserFunctionError, match="on purpose"):
            raising()


def test_failure_closes_the_functions_of_all_subtasks() -> None:
    closed: list[str] = []
    env = local_environment(parallelism=2)
    function = one_input(close=lambda: closed.append("close"), process_record=pass_on)
    stream = numbers_in(env, count=3).process(function).shuffle().process(function)
    stream.global_().process(one_input(open=fails)).to_sink(CollectSink())
    with pytest.raises(UserFunctionError):
        env.execute()
    assert len(closed) == 4


def test_failing_source_is_named() -> None:
    env = local_environment()
    source = DataGeneratorSource(lambda index: 1 // (index - 3), count=5)
    env.from_source(source, "Divisions").with_uid("divisions").to_sink(CollectSink())
    with pytest.raises(UserFunctionError) as caught:
        env.execute()
    error = caught.value
    assert (error.operator, error.callback, error.cause_type) == (
        "Divisions (uid 'divisions')",
        "read",
        "ZeroDivisionError",
    )


@pytest.mark.parametrize("sink", [ForeachBatchSink[int](fails), PrintSink[int](format=fails)])
def test_failing_sink_is_named(sink: Any) -> None:
    env = local_environment()
    numbers_in(env, count=5).to_sink(sink).with_uid("out")
    message = r"The function of the sink Sink \(uid 'out'\), defined at .*: ValueError: on purpose"
    with pytest.raises(JobError, match=message):
        env.execute()


def test_function_that_cannot_be_copied_is_named() -> None:
    class Function(OneInputStreamProcessFunction[Any, Any]):
        def __deepcopy__(self, memo: Any) -> Any:
            fails()

        def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...

    env = local_environment()
    numbers_in(env, count=1).process(Function()).with_uid("f").to_sink(CollectSink())
    with pytest.raises(SerializationError, match=r"function of Process \(uid 'f'\), defined at .* cannot be copied"):
        env.execute()


def test_users_function_object_is_not_modified() -> None:
    function = SumPerKey()
    env = local_environment()
    numbers_in(env, count=5).key_by(str).process(function).to_sink(CollectSink())
    env.execute()
    assert function.sums == {}


# --- Refusals --------------------------------------------------------------------------------------------------------


def test_spark_only_features_are_refused() -> None:
    env = local_environment()
    env.from_source(DataFrameSource(NoRows(), dict)).to_sink(CollectSink())
    message = r"The source Source \(uid '[\w-]+'\), defined at \S+, is a DataFrame, which only Spark can read\."
    with pytest.raises(ConfigurationError, match=message):
        env.execute()


def test_empty_batches_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="Each of batches must be a whole number of at least 1, not 0"):
        LocalRuntime(batches=[3, 0])


# --- The environment and the result ----------------------------------------------------------------------------------


def test_result_has_the_progress_of_each_operator() -> None:
    class Ticking:
        """Each reading of the clock is four seconds later."""

        time = 0

        def now_ms(self) -> int:
            self.time += 4000
            return self.time

        def wait(self, duration: timedelta) -> None: ...

    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=Ticking(), batches=[4]))
    env.set_parallelism(2)

    def process(record: int, output: Any, ctx: Any) -> None:
        output.collect(record)
        ctx.metric_group.counter("seen").inc()
        ctx.metric_group.gauge("one", lambda: 1)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(NEWEST.new_watermark(9))

    head = env.from_collection(range(10)).with_parallelism(1).shuffle()
    function = one_input(declare_watermarks=lambda: [NEWEST], process_record=process)
    tail = head.process(function).with_uid("head").shuffle().process(one_input())
    tail.with_uid("tail").to_sink(CollectSink())
    job = env.execute_async("my job")
    result = job.result()
    assert (result.job_name, result.duration, result.progress) == ("my job", timedelta(seconds=16), job.progress)
    assert (job.status, job.exception(), job.await_termination(timedelta(seconds=0))) == (
        JobStatus.FINISHED,
        None,
        True,
    )
    assert result.progress.batch_id >= 2
    (source, *_, sink) = result.progress.operators.values()
    assert ((source.records_in, source.records_out), (sink.records_in, sink.records_out)) == ((0, 10), (0, 0))
    first, second = result.progress.operators["head"], result.progress.operators["tail"]
    assert (first.uid, first.name, first.records_in, first.records_out) == ("head", "Process", 10, 10)
    assert (first.counters, first.gauges, first.watermarks) == ({"seen": 10}, {"one": 2}, {})
    assert (second.records_in, second.records_out, second.watermarks) == (10, 0, {"newest": (9, 9)})


def test_trigger_is_ignored() -> None:
    env = local_environment()
    env.from_collection([1]).to_sink(sink := CollectSink[int]())
    env.execute(trigger=Trigger.processing_time(ms(1000)))
    assert sink.results == [1]


# --- Records that are changed after they were emitted ----------------------------------------------------------------


@dataclass
class Box:
    content: list[int]


def checked(build: Callable[[NonKeyedPartitionStream[Any]], NonKeyedPartitionStream[Any]]) -> list[Any]:
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime()), CollectSink[Any]()
    build(env.from_collection([Box([1]), Box([2])], "boxes").with_uid("boxes")).to_sink(sink)
    env.execute()
    return sink.results


def copied(box: Box) -> Box:
    return Box([*box.content])


class Reusing(OneInputStreamProcessFunction[Box, Box]):
    """Emits the same box again and again."""

    def __init__(self) -> None:
        self.box = Box([])

    def process_record(self, record: Box, output: Any, ctx: Any) -> None:
        self.box.content.append(record.content[0])
        output.collect(self.box)


def change(box: Box) -> Box:
    box.content.append(3)
    return box


# fmt: off
MUTATIONS: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("emitted again", "Process (uid 'bad')", lambda boxes: boxes.process(Reusing()).with_uid("bad")),
    ("by who is chained", "Map (uid 'bad')", lambda boxes: boxes.map(copied).with_uid("bad").map(change)),
]
# fmt: on


@pytest.mark.parametrize(("emitter", "build"), [case[1:] for case in MUTATIONS], ids=[case[0] for case in MUTATIONS])
def test_mutated_record_is_detected(emitter: str, build: Any) -> None:
    with pytest.raises(RecordMutatedError) as caught:
        checked(build)
    message = str(caught.value)
    assert message.startswith(f"A record was modified after {emitter}, defined at {__file__}:")
    assert "emitted it: it was Box(content=[1]) and is now Box(content=[1, " in message
    assert message.endswith("Emit a copy, or create a new record.")


def test_each_reader_gets_its_own_copy() -> None:
    def build(boxes: Any) -> Any:
        copies = boxes.map(copied)
        copies.shuffle().process(lambda box, output, ctx: output.collect(change(box))).to_sink(CollectSink())
        return copies.shuffle().map(copied)

    assert sorted(box.content for box in checked(build)) == [[1], [2]]


def test_correct_programs_pass() -> None:
    def build(boxes: Any) -> Any:
        return (
            boxes.map(copied)
            .key_by(lambda box: box.content[0])
            .process(
                lambda box, output, ctx: [output.collect(change(copied(box))), output.collect(box), output.collect(box)]
            )
        )

    assert checked(build) == [Box([1, 3]), Box([1]), Box([1]), Box([2, 3]), Box([2]), Box([2])]


def test_unserializable_record_is_detected() -> None:
    """On Spark it could not leave its subtask."""
    with pytest.raises(SerializationError, match=r"Map \(uid 'bad'\), defined at .* emitted <unlocked _thread.lock"):
        checked(lambda boxes: boxes.map(lambda box: threading.Lock()).with_uid("bad"))


def test_record_that_cannot_be_read_names_its_sender_among_several_inputs() -> None:
    """The channel of the second input follows the two channels of the first one."""
    env = local_environment()
    env.register_type(Box, take_apart=lambda box: box.content, build=fails)
    first = env.from_collection([1, 2]).map(str).with_parallelism(2).with_uid("good").shuffle()
    second = env.from_collection([1]).map(lambda number: Box([number])).with_uid("bad").shuffle()
    first.connect_and_process(second, two_inputs()).to_sink(CollectSink())
    with pytest.raises(SerializationError, match=r"Map \(uid 'bad'\), defined at .* emitted Box\(content=\[1\]\)\. "):
        env.execute()


def test_channels_take_turns_without_checks() -> None:
    """A channel that has much to read does not run ahead of the others."""
    records = 5 * MAX_FRAME_RECORDS
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime(checks=False)), CollectSink[int]()
    numbers = env.from_source(DataGeneratorSource(int, count=2 * records), "numbers").with_uid("numbers")
    merged = numbers.with_parallelism(2).process(one_input(process_record=pass_on)).with_parallelism(1)
    merged.to_sink(sink)
    env.execute()
    turns = [len([*turn]) for _, turn in groupby(number % 2 for number in sink.results)]
    assert sum(turns) == 2 * records
    assert max(turns) <= MAX_FRAME_RECORDS
