"""Edits that Spark applies, and a job on Spark that starts from a savepoint of its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, JobError
from dsv2.cli import main
from dsv2.errors import ConfigurationError
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint, SavepointEditor, bootstrap
from dsv2.sinks import CollectSink
from dsv2.testing import Stop, TestSource
from tests.counting import COUNT, SEEN, Counting, tens


def build(env: ExecutionEnvironment, records: list[Any]) -> CollectSink[Any]:
    env.set_parallelism(2)
    sink = CollectSink[Any]()
    stream = env.from_source(TestSource[Any](records)).with_uid("in").with_parallelism(1)
    stream.key_by(tens).process(Counting()).with_uid("f").to_sink(sink).with_uid("out")
    return sink


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Savepoint:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    build(env, [*range(20), Stop(), 20])
    return Savepoint.open(env.execute_async("job").savepoint(tmp_path_factory.mktemp("original")))


def edited(original: Savepoint) -> SavepointEditor:
    editor = original.edit().rename_operator("f", "counts").filter_keys("counts", lambda key: key > 2)
    editor = editor.map_state("counts", "count", lambda key, count: count + key if key != 5 else None)
    return editor.rename_state("counts", "seen", "all").set_position("in", {"position": 3})


def test_spark_edits_as_one_process_does(spark: SparkSession, original: Savepoint, tmp_path: Path) -> None:
    editor = edited(original)
    local = Savepoint.open(editor.write(tmp_path / "local"))
    on_spark = Savepoint.open(editor.write(tmp_path / "spark", spark=spark))
    on_spark.verify()
    assert not local.diff(on_spark)
    assert not local.diff(Savepoint.open(on_spark.edit().write(tmp_path / "copy")))
    assert on_spark.state("counts", "count").to_spark(spark).count() == 6
    assert main(["savepoint", "edit", on_spark.path, f"{tmp_path}/b", "--drop-operator", "counts", "--spark"]) == 0
    assert Savepoint.open(tmp_path / "b").operators == {"in": ()}


def test_impossible_edits_leave_nothing(spark: SparkSession, original: Savepoint, tmp_path: Path) -> None:
    twice = spark.createDataFrame([(1, 1), (2, 2), (1, 3)], "key bigint, value bigint")
    text = spark.createDataFrame([(1, "one")], "key bigint, value string")
    wrong = edited(original).map_state("counts", "count", lambda key, count: str(count))
    for editor, error, message in (
        (original.edit().put_state("f", COUNT, twice), ConfigurationError, "'count' of 'f': the key 1 occurs twice"),
        (original.edit().put_state("f", COUNT, text), ConfigurationError, "'one' is not of type int"),
        (wrong, JobError, r"map_state\('counts', 'count'\): the value .* is not of type int"),
    ):
        with pytest.raises(error, match=message):
            editor.write(tmp_path / "new", spark=spark)
        assert not list((tmp_path / "new").iterdir()) if (tmp_path / "new").exists() else True
    with pytest.raises(ConfigurationError, match=r"DataFrame of Spark\. Use write\(path, spark="):
        original.edit().put_state("f", COUNT, text).write(tmp_path / "new")


def test_job_starts_from_its_history(spark: SparkSession, tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(spark=spark)
    sink = build(env, [0, 1, 2])
    history = spark.range(1, 11).selectExpr("id % 10 AS key", "id * 100 AS value")
    seen = spark.sql("SELECT array(7, 8) AS value")
    editor = bootstrap(env.build_plan("new")).put_state("f", COUNT, history).put_state("f", SEEN, seen)
    path = editor.write(tmp_path / "savepoint", spark=spark)
    job = env.execute_async("new", savepoint=path, checkpoint_location=tmp_path / "checkpoint")
    job.await_termination()
    counts = [(key, count) for key, count in sink.results if isinstance(count, int)]
    assert sorted(counts) == [(0, 1001), (1, 101), (2, 201)]
