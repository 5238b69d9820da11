"""Records that pass through a DataFrame in a job: repeated micro-batches, restarts, what Spark refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2 import CollectSink, ExecutionEnvironment, Trigger
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError, PlanError, UserFunctionError
from dsv2.testing import Stop, TestSource
from runtime_spark import SparkRuntime, StateLayout, create_savepoint, through_dataframe
from tests.numbering import Numbering

INPUT = [*range(6), Stop(), *range(6, 12), Stop(), *range(12, 18), Stop(), *range(18, 24)]


class Counted(NamedTuple):
    key: str
    number: int
    times: int


class Named(NamedTuple):
    name: str
    number: int
    times: int


class Result(NamedTuple):
    name: str
    number: int
    counts: tuple[int, int]


def first(key: int, number: int, nth: int) -> Counted:
    return Counted("abc"[key], number, nth)


def second(key: str, record: Named, nth: int) -> Result:
    return Result(key, record.number, (record.times, nth))


def remainder(number: int) -> int:
    return number % 3


def name(row: Any) -> str:
    return str(row.name)


def with_names(rows: DataFrame) -> DataFrame:
    """Names two of three keys."""
    names = rows.sparkSession.createDataFrame([("a", "Ada"), ("b", "Bob")], "key string, name string")
    return rows.join(F.broadcast(names), "key").select("name", "number", "times")


def positive_with_names(rows: DataFrame) -> DataFrame:
    return with_names(rows.where("number > 0"))


def numbered_once(rows: DataFrame) -> DataFrame:
    return with_names(rows.dropDuplicates(["number"]))


def run(
    spark: SparkSession,
    checkpoint: Path | None,
    transform: Callable[[DataFrame], DataFrame] = with_names,
    *,
    fails: bool = False,
    parallelism: int = 2,
    layout: StateLayout = StateLayout.BLOB,
    **options: Any,
) -> list[Result]:
    """Continue to the next stop: a micro-batch of six records, four of which have a name."""
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=layout))
    env.set_parallelism(parallelism)
    numbers = env.from_source(TestSource[int](INPUT)).with_uid("numbers").key_by(remainder)
    counted = numbers.process(Numbering(first)).with_uid("first")
    named = through_dataframe(env, counted, transform, Counted, Named).with_uid("named")
    results = named.key_by(name).process(Numbering(second)).with_uid("second")

    def check(result: Result) -> Result:
        if fails:
            raise ValueError("not this time")
        return result

    sink = CollectSink[Result]()
    results.shuffle().map(check).with_uid("check").to_sink(sink).with_uid("sink")
    if checkpoint is None:
        env.set_execution_mode("batch")
    job = env.execute("named", checkpoint_location=None if checkpoint is None else str(checkpoint), **options)
    read = {uid: operator.records_in for uid, operator in job.progress.operators.items()}
    assert read["second"] == 2 / 3 * read["first"]  # the reports of subtasks before the DataFrame arrive
    return sorted(sink.results)


def check(results: list[Result], numbers: range) -> None:
    """Both states have counted each record once. Every third number has the same key."""
    named = [number for number in numbers if number % 3 < 2]
    assert [(r.name, r.number) for r in results] == sorted((("Ada", "Bob")[number % 3], number) for number in named)
    counts = list(range(numbers.start // 3 + 1, numbers.stop // 3 + 1))
    for name in ("Ada", "Bob"):
        before, after = zip(*(result.counts for result in results if result.name == name), strict=True)
        assert sorted(before) == counts
        assert sorted(after) == counts


def test_repeated_micro_batch_and_changed_programs(spark: SparkSession, tmp_path: Path) -> None:
    """Both states count each record once, before and after the DataFrame."""
    checkpoint = tmp_path
    check(run(spark, checkpoint), range(6))
    with pytest.raises(UserFunctionError, match="not this time"):
        run(spark, checkpoint, fails=True)  # both levels before have already written their state
    check(run(spark, checkpoint, positive_with_names), range(6, 12))  # other SQL without state
    with pytest.raises(IncompatibleCheckpointError, match="parallelism"):
        run(spark, checkpoint, parallelism=3, on_change="refuse")
    check(run(spark, checkpoint, parallelism=3), range(12, 18))  # migrates, by a savepoint
    check(run(spark, checkpoint, parallelism=3), range(18, 24))


def test_state_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Its operators are part of the record of the job, and no savepoint contains them."""
    check(run(spark, tmp_path, numbered_once, layout=StateLayout.MAP), range(6))
    with pytest.raises(UserFunctionError, match="not this time"):
        run(spark, tmp_path, numbered_once, layout=StateLayout.MAP, fails=True)
    check(run(spark, tmp_path, numbered_once, layout=StateLayout.MAP), range(6, 12))
    with pytest.raises(IncompatibleCheckpointError, match=r"were \[\['Deduplicate'\]\] and are now \[\]"):
        run(spark, tmp_path, layout=StateLayout.MAP)
    with pytest.raises(ConfigurationError, match="A savepoint cannot contain their state"):
        create_savepoint(tmp_path, tmp_path / "savepoint", spark=spark)


def test_batch_job(spark: SparkSession) -> None:
    def in_order(rows: DataFrame) -> DataFrame:
        return with_names(rows).orderBy("number")  # not in a streaming query

    check(run(spark, None, in_order), range(24))


NEEDS_WATERMARK = "aggregations without watermark"
EXACTLY_ONCE = "must read the given DataFrame exactly once, and no other stream"


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda rows: rows.groupBy("key").count(), NEEDS_WATERMARK),
        (lambda rows: rows.orderBy("number"), "Sorting is not supported on streaming"),
        (
            lambda rows: rows.selectExpr("key", "row_number() OVER (PARTITION BY key ORDER BY number) AS n"),
            "Window function is not supported",
        ),
        (lambda rows: rows.sample(0.5), "Sampling is not supported on streaming"),
        (lambda rows: rows.select("nothing"), r"transform of .*uid 'df'.*`nothing` cannot be resolved.*42703\."),
        (lambda rows: rows.cache(), "Queries with streaming sources must be executed with writeStream.start"),
        (lambda rows: rows.union(rows), EXACTLY_ONCE),
        (lambda rows: rows.join(rows.select("key"), "key"), EXACTLY_ONCE),
        (lambda rows: rows.sparkSession.readStream.format("rate").load(), EXACTLY_ONCE),
        (lambda rows: 3, "returned a int, not a DataFrame"),
    ],
)
def test_what_spark_does_not_support_is_refused_before_the_start(
    spark: SparkSession, tmp_path: Path, transform: Any, message: str
) -> None:
    env = ExecutionEnvironment.get_instance(spark=spark)
    rows = env.from_collection([Counted("a", 1, 1)]).with_uid("rows")
    through_dataframe(env, rows, transform, Counted, dict).with_uid("df").to_sink(CollectSink())
    with pytest.raises(PlanError, match=message):
        env.execute("refused", checkpoint_location=str(tmp_path), trigger=Trigger.available_now())
    assert list(tmp_path.iterdir()) == []
