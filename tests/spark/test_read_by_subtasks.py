"""A source that feeds one chain, subtask by subtask, is read by the subtasks of that chain."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, RuntimeExecutionMode
from dsv2.errors import UserFunctionError
from dsv2.functions import MapFunction, OneInputStreamProcessFunction, TwoInputNonBroadcastStreamProcessFunction
from dsv2.sinks import CollectSink
from dsv2.sources import BaseSource, DataGeneratorSource
from tests.profiles import nightly
from tests.spans import Item, Spans
from tests.spark.programs import environment
from tests.support import one_input, our_files

STREAMING, BATCH = RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH


class Sums(OneInputStreamProcessFunction[Callable[[], int], tuple[int, int]]):
    """Sums up the results of the subtask's records, in a field, which is checkpointed."""

    def __init__(self) -> None:
        self.sum = 0

    def process_record(self, record: Callable[[], int], output: Any, ctx: Any) -> None:
        self.sum += record()
        output.collect((ctx.task_info.index_of_this_subtask, self.sum))


def run(env: ExecutionEnvironment, mode: RuntimeExecutionMode, checkpoint: str) -> Any:
    env.set_execution_mode(mode)
    return env.execute(checkpoint_location=checkpoint if mode is STREAMING else None)


@pytest.mark.parametrize("mode", [STREAMING, *nightly(BATCH)])
def test_records_are_not_serialized(spark: SparkSession, mode: RuntimeExecutionMode, checkpoint: str) -> None:
    """They may even be unserializable. State is kept from micro-batch to micro-batch."""
    env, sink = environment(spark, 2, mode), CollectSink[tuple[int, int]]()
    answers = DataGeneratorSource(lambda number: lambda: number, count=9, records_per_batch=4)
    env.from_source(answers, "answers").filter(lambda answer: answer() != 4).with_uid("kept").process(Sums()).with_uid(
        "sums"
    ).to_sink(sink)
    progress = run(env, mode, checkpoint).progress.operators
    assert sorted(sink.results) == [(0, 0), (0, 2), (0, 8), (0, 16), (1, 1), (1, 4), (1, 9), (1, 16)]
    counts = {uid: (operator.records_in, operator.records_out) for uid, operator in progress.items()}
    assert counts["kept"] == (9, 8)
    assert counts["sums"] == (8, 8)


class Turns(TwoInputNonBroadcastStreamProcessFunction[Any, Any, tuple[str, int]]):
    """Emits changes of the input: the new input, and the number of records before."""

    def __init__(self) -> None:
        self.last = ""
        self.count = 0

    def note(self, name: str, output: Any) -> None:
        if name != self.last:
            self.last = name
            output.collect((name, self.count))
        self.count += 1

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None:
        self.note("first", output)

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None:
        self.note("second", output)


FRAME = 8192
WAYS: dict[str, Callable[[Any], Any]] = {
    "read": lambda stream: stream,
    "in frames": lambda stream: stream.shuffle(),
    "in frames of a level before": lambda stream: stream.key_by(bool).process(MapFunction(int)).shuffle(),
}


def turns_of(spark: SparkSession, mode: RuntimeExecutionMode, checkpoint: str, ways: tuple[str, str]) -> list[Any]:
    """Two micro-batches, each with some frames of both inputs."""
    env, sink = environment(spark, 1), CollectSink[Any]()
    streams = [
        WAYS[way](
            env.from_source(DataGeneratorSource(int, count=2 * records, records_per_batch=records), name).with_uid(name)
        )
        for name, way, records in zip(["first", "second"], ways, [2 * FRAME + 5, 3 * FRAME], strict=True)
    ]
    streams[0].connect_and_process(streams[1], Turns()).with_uid("turns").to_sink(sink)
    run(env, mode, checkpoint)
    return sink.results


@pytest.mark.parametrize(
    ("mode", "second"), [(STREAMING, "read"), (STREAMING, "in frames of a level before"), (BATCH, "read")]
)
def test_inputs_alternate_as_with_frames(
    spark: SparkSession, mode: RuntimeExecutionMode, second: str, tmp_path: Path
) -> None:
    """Neither has to wait for the end of the other."""
    expected = turns_of(spark, mode, str(tmp_path / "frames"), ("in frames", second.replace("read", "in frames")))
    assert turns_of(spark, mode, str(tmp_path / "read"), ("read", second)) == expected
    assert len(expected) > 8


@pytest.mark.parametrize(
    "source", [DataGeneratorSource(partial(Item, "a"), count=9), Spans({"a": 9})], ids=["generator", "splits"]
)
def test_failure_names_the_function_not_the_source(
    spark: SparkSession, source: BaseSource[Item], checkpoint: str
) -> None:
    env = environment(spark, 2)
    fails = one_input(process_record=lambda record, output, ctx: output.collect(1 // (record.number - 4)))
    env.from_source(source, "numbers").process(fails).with_uid("inverse").to_sink(CollectSink())
    with pytest.raises(UserFunctionError) as raised:
        run(env, STREAMING, checkpoint)
    assert "inverse" in raised.value.operator
    assert (raised.value.callback, raised.value.record) == ("process_record", "Item(span='a', number=4)")


def test_function_is_closed_when_its_source_fails(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    def number(index: int) -> int:
        return 7 // (5 - index)

    def close() -> None:
        (tmp_path / "closed").touch()

    env = environment(spark, 1)
    sees = one_input(process_record=lambda record, output, ctx: None, close=close)
    env.from_source(DataGeneratorSource(number, count=9), "numbers").process(sees).to_sink(CollectSink())
    with pytest.raises(UserFunctionError) as raised:
        run(env, STREAMING, checkpoint)
    assert "numbers" in raised.value.operator
    assert (raised.value.callback, raised.value.cause_type) == ("read", "ZeroDivisionError")
    assert not our_files(raised.value.traceback_text)
    assert (tmp_path / "closed").exists()
