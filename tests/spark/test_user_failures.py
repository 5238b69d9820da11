"""Objects that cannot be sent between processes, and modules that workers lack. See also tests/conformance."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import JobError, RuntimeExecutionMode
from dsv2.errors import SerializationError
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from tests.conformance.functions import Pass
from tests.profiles import nightly
from tests.spark.programs import environment

BATCH, STREAMING = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING


class Item(NamedTuple):
    key: str
    value: int


ITEMS = [Item("a", 1), Item("b", 2), Item("a", 3)]


class Locked(Pass[Item]):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_unpicklable_objects_are_refused_before_the_start(spark: SparkSession, checkpoint: str) -> None:
    lock = threading.Lock()
    builds: list[tuple[Callable[[Any], Any], str]] = [
        (lambda s: s.process(Locked()), r"^Field 'lock' \(lock\) of the function of Process"),
        (lambda s: s.map(lambda item: (lock, item)), "cannot pickle '_thread.lock' object"),
        (lambda s: s.key_by(lambda item: lock.locked()).process(Pass()), "^The key selector of KeyedProcess"),
        (lambda s: s.map(lambda item: spark.range(item.value)), "cannot be pickled"),
    ]
    for build, said in builds:
        env = environment(spark)
        build(env.from_collection(ITEMS)).to_sink(CollectSink())
        with pytest.raises(SerializationError, match=said) as refused:
            env.execute("unpicklable", checkpoint_location=checkpoint)
        assert f"defined at {__file__}:" in str(refused.value)
        assert not Path(checkpoint).exists()


def with_a_lock(item: Item) -> Item | tuple[Item, Any]:
    return item if item.value < 3 else (item, threading.Lock())


@pytest.mark.parametrize("mode", [STREAMING, *nightly(BATCH)])
def test_unserializable_record_names_its_emitter(
    spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode
) -> None:
    env = environment(spark, mode=mode)
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


@pytest.mark.parametrize("mode", [STREAMING, *nightly(BATCH)])
def test_module_missing_in_workers_is_named(
    spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def same(record):\n    return record\n")
    monkeypatch.syspath_prepend(tmp_path)  # of this process; workers already have their path
    same = importlib.import_module("only_here").same
    env = environment(spark, mode=mode)
    env.from_source(DataGeneratorSource(same, count=2)).to_sink(CollectSink())
    with pytest.raises(JobError, match="cannot import a module: No module named 'only_here'") as failed:
        env.execute("lost", checkpoint_location=checkpoint if mode is STREAMING else None)
    assert f"PYSPARK_PYTHON={sys.executable}" in str(failed.value)
