"""The caller of ``execute`` gets all details of a failure in another process."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import (
    Collector,
    ExecutionEnvironment,
    JobError,
    JobStatus,
    NonPartitionedContext,
    PartitionedContext,
    RuntimeExecutionMode,
)
from dsv2.errors import InvalidKeyError, SerializationError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder

BATCH, STREAMING = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING
W = new_builder("w").type_long().build()


class Item(NamedTuple):
    key: str
    value: int


ITEMS = [Item("a", 1), Item("b", 2), Item("a", 3)]


class Send(OneInputStreamProcessFunction[Item, Item]):
    """Sends its last value as a watermark at the end."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [W]

    def process_record(self, record: Item, output: Collector[Item], ctx: PartitionedContext[Item]) -> None:
        output.collect(record)

    def end_input(self, ctx: NonPartitionedContext[Item]) -> None:
        ctx.watermark_manager.emit_watermark(W.new_watermark(7))


class Fail(OneInputStreamProcessFunction[Item, Item]):
    """Fails in one of its callbacks."""

    def __init__(self, where: str) -> None:
        self.where = where

    def open(self, ctx: NonPartitionedContext[Item]) -> None:
        self.fail_in("open")

    def process_record(self, record: Item, output: Collector[Item], ctx: PartitionedContext[Item]) -> None:
        if record.value == 2:
            self.fail_in("process_record")

    def on_watermark(
        self, watermark: Watermark, output: Collector[Item], ctx: NonPartitionedContext[Item]
    ) -> WatermarkHandlingResult:
        self.fail_in("on_watermark")
        return WatermarkHandlingResult.PEEK

    def end_input(self, ctx: NonPartitionedContext[Item]) -> None:
        self.fail_in("end_input")

    def close(self) -> None:
        self.fail_in("close")

    def fail_in(self, callback: str) -> None:
        if callback == self.where:
            raise ZeroDivisionError(f"on purpose, in {callback} – ünïcode\nand a second line")


def run(
    spark: SparkSession,
    checkpoint: str,
    mode: RuntimeExecutionMode,
    function: OneInputStreamProcessFunction[Item, Any],
    key: Callable[[Item], Any] = lambda item: item.key,
) -> UserFunctionError:
    """The failure of a job of two levels, the second of which runs ``function``."""
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_execution_mode(mode)
    stream = env.from_collection(ITEMS).process(Send()).with_uid("send")
    stream.key_by(key).process(function).with_uid("f").with_name("Failing").to_sink(CollectSink())
    with pytest.raises(UserFunctionError) as failed:
        env.execute("fails", checkpoint_location=checkpoint if mode is STREAMING else None)
    return failed.value


@pytest.mark.parametrize(
    ("mode", "callback"),
    [
        (STREAMING, "process_record"),
        (BATCH, "process_record"),
        (BATCH, "open"),
        (BATCH, "on_watermark"),
        (BATCH, "end_input"),
        (BATCH, "close"),
    ],
)
def test_error_has_all_details(spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode, callback: str) -> None:
    failure = run(spark, checkpoint, mode, Fail(callback))
    assert failure.operator == "Failing (uid 'f')"
    assert failure.callback == callback
    assert failure.subtask == 0
    assert failure.cause_type == "ZeroDivisionError"
    assert failure.cause_message == f"on purpose, in {callback} – ünïcode\nand a second line"
    if callback == "process_record":
        assert (failure.key, failure.record) == ("'b'", "Item(key='b', value=2)")
    file, _, line = failure.location.rpartition(":")
    assert file == __file__
    with open(file) as lines:
        assert ".process(function)" in lines.readlines()[int(line) - 1]
    # The user's own frames only.
    assert f"in {callback}\n" in failure.traceback_text
    assert 'raise ZeroDivisionError(f"on purpose' in failure.traceback_text
    assert set(re.findall('File "(.*)"', failure.traceback_text)) == {__file__}


def test_invalid_key_is_named_with_its_record(spark: SparkSession, checkpoint: str) -> None:
    failure = run(spark, checkpoint, BATCH, Fail("never"), key=lambda item: item.key if item.value != 3 else None)
    assert failure.cause_type == InvalidKeyError.__name__
    assert failure.record == "Item(key='a', value=3)"
    assert failure.callback == "key selector"


def test_fixed_function_resumes(spark: SparkSession, checkpoint: str) -> None:
    run(spark, checkpoint, STREAMING, Fail("process_record"))
    env, sink = ExecutionEnvironment.get_instance(spark=spark), CollectSink[Item]()
    stream = env.from_collection(ITEMS).process(Send()).with_uid("send")
    stream.key_by(lambda item: item.key).process(Send()).with_uid("f").to_sink(sink)
    job = env.execute_async("fails", checkpoint_location=checkpoint)
    job.await_termination()
    assert job.status is JobStatus.FINISHED
    assert sink.results == ITEMS


def test_failing_source_shows_the_users_frames(spark: SparkSession, checkpoint: str) -> None:
    env = ExecutionEnvironment.get_instance(spark=spark)
    source = DataGeneratorSource(lambda index: 1 // (index - 3), count=5)
    env.from_source(source, "numbers").with_uid("in").to_sink(CollectSink())
    with pytest.raises(UserFunctionError) as failed:
        env.execute("fails", checkpoint_location=checkpoint)
    assert (failed.value.operator, failed.value.callback) == ("numbers (uid 'in')", "read")
    assert failed.value.cause_type == "ZeroDivisionError"
    assert set(re.findall('File "(.*)"', failed.value.traceback_text)) == {__file__}


class Locked(Send):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_unpicklable_objects_are_refused_before_the_start(spark: SparkSession, checkpoint: str) -> None:
    lock = threading.Lock()
    builds: list[tuple[Callable[[Any], Any], str]] = [
        (lambda s: s.process(Locked()), r"^Field 'lock' \(lock\) of the function of Process"),
        (lambda s: s.map(lambda item: (lock, item)), "cannot pickle '_thread.lock' object"),
        (lambda s: s.key_by(lambda item: lock.locked()).process(Send()), "^The key selector of KeyedProcess"),
        (lambda s: s.map(lambda item: spark.range(item.value)), "cannot be pickled"),
    ]
    for build, said in builds:
        env = ExecutionEnvironment.get_instance(spark=spark)
        build(env.from_collection(ITEMS)).to_sink(CollectSink())
        with pytest.raises(SerializationError, match=said) as refused:
            env.execute("unpicklable", checkpoint_location=checkpoint)
        assert f"defined at {__file__}:" in str(refused.value)
        assert not Path(checkpoint).exists()


class LockedLater(Send):
    def open(self, ctx: NonPartitionedContext[Item]) -> None:
        self.lock = threading.Lock()


def test_unserializable_field_is_named(spark: SparkSession, checkpoint: str) -> None:
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.from_collection(ITEMS).process(LockedLater()).with_uid("later").to_sink(CollectSink())
    with pytest.raises(SerializationError) as refused:
        env.execute("unpicklable", checkpoint_location=checkpoint)
    text = str(refused.value)
    assert text.startswith(f"Process (uid 'later'), defined at {__file__}:")
    assert "field 'lock' (lock) cannot be checkpointed. " in text
    assert "define __getstate__ (without the field) and __setstate__" in text
    assert list(Path(checkpoint, "commits").glob("[!.]*")) == []


def with_a_lock(item: Item) -> Item | tuple[Item, Any]:
    return item if item.value < 3 else (item, threading.Lock())


@pytest.mark.parametrize("mode", [STREAMING, BATCH])
def test_unserializable_record_names_its_emitter(
    spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode
) -> None:
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_execution_mode(mode)
    items = env.from_collection(ITEMS)
    # The second of two functions in one subtask.
    items.map(lambda item: item).with_uid("first").map(with_a_lock).with_uid("second").with_name("Lock").to_sink(
        CollectSink()
    )
    with pytest.raises(SerializationError) as refused:
        env.execute("unpicklable", checkpoint_location=checkpoint if mode is STREAMING else None)
    text = str(refused.value)
    assert text.startswith("_thread.lock is not a data class")
    assert f" Lock (uid 'second'), defined at {__file__}:" in text
    assert ", emitted (Item(key='a', value=3), <unlocked _thread.lock object" in text
    assert "Records are sent between processes, so they must contain plain values only." in text


@pytest.mark.parametrize("mode", [STREAMING, BATCH])
def test_module_missing_in_workers_is_named(
    spark: SparkSession,
    checkpoint: str,
    mode: RuntimeExecutionMode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "only_here.py").write_text("def same(record):\n    return record\n")
    monkeypatch.syspath_prepend(tmp_path)  # of this process; workers already have their path
    same = importlib.import_module("only_here").same
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_execution_mode(mode)
    env.from_source(DataGeneratorSource(same, count=2)).to_sink(CollectSink())
    with pytest.raises(JobError, match="cannot import a module: No module named 'only_here'") as failed:
        env.execute("lost", checkpoint_location=checkpoint if mode is STREAMING else None)
    assert f"PYSPARK_PYTHON={sys.executable}" in str(failed.value)
