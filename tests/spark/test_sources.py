"""DataFrames as sources: the records, their order, and their micro-batches."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2 import (
    Collector,
    ExecutionEnvironment,
    NonPartitionedContext,
    PartitionedContext,
    RuntimeExecutionMode,
    Trigger,
)
from dsv2.errors import ConfigurationError, SchemaError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.sinks import CollectSink
from tests.profiles import nightly
from tests.spark.programs import environment
from tests.support import NoRows

BATCH, STREAMING = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING


@dataclass(frozen=True)
class Order:
    """Some of the columns, in another order."""

    topic: str
    id: int
    at: datetime
    day: date
    price: Decimal
    tags: list[str]
    note: str | None
    counts: dict[str, int]


class Brief(NamedTuple):
    note: str | None
    id: int


@dataclass(frozen=True)
class Numbered:
    id: int
    split: int


ORDERS = [
    (
        number,
        f"topic {number % 3}",
        datetime(2024, 7, number + 1, 12, tzinfo=UTC),
        date(2024, 7, number + 1),
        Decimal(number) / 4,
        ["a"] * number,
        None if number % 2 else f"note {number}",
        {"n": number},
        b"\0",
    )
    for number in range(8)
]
COLUMNS = ["id", "topic", "at", "day", "price", "tags", "note", "counts", "raw"]
SCHEMA = (
    "id int, topic string, at timestamp, day date, price decimal(10,2), tags array<string>, note string, "
    "counts map<string, long>, raw binary"
)


class Seen(NamedTuple):
    """A record in a subtask. It identifies the subtask, so the results may be in any order of subtasks."""

    subtask: int
    split: int
    id: int


class See(OneInputStreamProcessFunction[Numbered, Seen]):
    """Emits every record with its subtask, and counts its own opening and end."""

    def open(self, ctx: NonPartitionedContext[Seen]) -> None:
        ctx.metric_group.counter("opened").inc()

    def process_record(self, record: Numbered, output: Collector[Seen], ctx: PartitionedContext[Seen]) -> None:
        output.collect(Seen(ctx.task_info.index_of_this_subtask, record.split, record.id))

    def end_input(self, ctx: NonPartitionedContext[Seen]) -> None:
        ctx.metric_group.counter("ended").inc()


def options(mode: RuntimeExecutionMode, checkpoint: str) -> dict[str, Any]:
    return {"checkpoint_location": checkpoint} if mode is STREAMING else {}


def see(env: ExecutionEnvironment, frame: DataFrame, parallelism: int, uid: str, **how: Any) -> CollectSink[Seen]:
    sink = CollectSink[Seen]()
    source = env.from_dataframe(frame, Numbered, **how).with_uid(f"rows of {uid}").with_parallelism(parallelism)
    source.process(See()).with_parallelism(parallelism).with_uid(uid).to_sink(sink)
    return sink


def by_split(seen: Iterable[Seen]) -> dict[int, list[int]]:
    """The ids of each split in the order in which they were seen. No two subtasks may have seen the same split."""
    subtasks: dict[int, set[int]] = defaultdict(set)
    ids: dict[int, list[int]] = defaultdict(list)
    for record in seen:
        subtasks[record.split].add(record.subtask)
        ids[record.split].append(record.id)
    assert all(len(own) == 1 for own in subtasks.values())
    return ids


@pytest.mark.parametrize("mode", [BATCH, *nightly(STREAMING)])
def test_rows_become_records_of_every_type(spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode) -> None:
    frame = spark.createDataFrame(ORDERS, SCHEMA)
    env = environment(spark, 2, mode)
    sinks: dict[type, CollectSink[Any]] = {}
    for record_type in (Order, Brief, dict, Row):
        sinks[record_type] = CollectSink()
        # Through an operator, so that the records are serialized like any other.
        rows_of_type = env.from_dataframe(frame, record_type).with_uid(record_type.__name__)
        rows_of_type.map(lambda record: record).to_sink(sinks[record_type])
    env.execute("types", **options(mode, checkpoint))
    rows: list[dict[str, Any]] = [dict(zip(COLUMNS, row, strict=True)) for row in ORDERS]
    expected: dict[type, list[Any]] = {
        Order: [Order(**{name: row[name] for name in Order.__dataclass_fields__}) for row in rows],
        Brief: [Brief(row["note"], row["id"]) for row in rows],
        dict: rows,
        Row: [Row(**row) for row in rows],
    }
    for kind, sink in sinks.items():
        assert {type(record) for record in sink.results} == {kind}
        assert sorted(sink.results, key=lambda r: r["id"] if isinstance(r, dict) else r.id) == expected[kind]
    # A timestamp is aware of its zone, in any time zone of the session.
    assert {order.at.utcoffset() is not None for order in sinks[Order].results} == {True}


@pytest.mark.parametrize("mode", [BATCH, STREAMING])
def test_each_split_keeps_its_order_at_any_parallelism(
    spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode
) -> None:
    # Each of the 7 splits has rows in each of the 5 partitions.
    frame = spark.range(0, 700, 1, 5).withColumn("split", F.col("id") % 7)
    env = environment(spark, mode=mode)
    sinks = {p: see(env, frame, p, f"see-{p}", split_by="split", records_per_batch=250) for p in (1, 2, 4)}
    progress = env.execute("splits", **options(mode, checkpoint)).progress
    for parallelism, sink in sinks.items():
        assert by_split(sink.results) == {split: list(range(split, 700, 7)) for split in range(7)}
        assert {record.subtask for record in sink.results} == {stable_hash(s) % parallelism for s in range(7)}
        assert progress.operators[f"see-{parallelism}"].counters == {"opened": parallelism, "ended": parallelism}
    if mode is STREAMING:
        [batches] = sinks[2]._batches.values()
        cuts = [len(records) for records in batches.values()]
        assert cuts == [250, 250, 200]
        assert progress.batch_id == 2


def test_without_split_by_a_partition_is_a_split(spark: SparkSession, checkpoint: str) -> None:
    frame = spark.range(0, 400, 1, 4).withColumn("split", (F.col("id") / 100).cast("int"))
    env = environment(spark)
    # Together with a source that ends on its own: its partitions exist in some micro-batches only.
    env.from_collection(range(2), records_per_batch=1).to_sink(CollectSink())
    sink = see(env, frame, 3, "see", records_per_batch=50)
    env.execute("partitions", checkpoint_location=checkpoint)
    assert by_split(sink.results) == {split: list(range(split * 100, split * 100 + 100)) for split in range(4)}
    [batches] = sink._batches.values()
    assert len(batches) == 8


def test_shuffled_dataframe_loses_no_rows(spark: SparkSession, checkpoint: str) -> None:
    # The session would shuffle into 8 partitions, the query into one.
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "8")
    try:
        frame = spark.range(0, 300, 1, 3).orderBy(F.col("id").desc()).withColumn("split", F.lit(0))
        env = environment(spark)
        sink = see(env, frame, 1, "see", records_per_batch=100)
        env.execute("shuffled", checkpoint_location=checkpoint)
    finally:
        assert before is not None
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert by_split(sink.results) == {0: list(range(299, -1, -1))}


@pytest.mark.parametrize("mode", [BATCH, STREAMING])
def test_empty_dataframe_opens_and_ends(spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode) -> None:
    frame = spark.range(0).withColumn("split", F.lit(0))
    env = environment(spark, mode=mode)
    sink = see(env, frame, 2, "see", split_by="split")
    progress = env.execute("empty", **options(mode, checkpoint)).progress
    assert sink.results == []
    assert progress.operators["see"].counters == {"opened": 2, "ended": 2}


def write_file(folder: Path, number: int, rows: Iterable[tuple[int, int]]) -> None:
    lines = [json.dumps({"id": row_id, "split": split}) for row_id, split in rows]
    # All have the same length: Spark sorts the files of a micro-batch by length, and only then by age.
    text = "\n".join(line.ljust(40) for line in lines)
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text(text)
    os.utime(folder / f"{number}.json", (1_700_000_000 + number,) * 2)


def test_streaming_dataframe_is_read_in_order(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for number in range(6):
        write_file(folder, number, [(number * 20 + at, at % 3) for at in range(20)])
    frame = spark.readStream.schema("id long, split int").option("maxFilesPerTrigger", 3).json(str(folder))

    def run(files: range) -> dict[int, tuple[CollectSink[Seen], int]]:
        """By parallelism: the records seen, and the number of opened subtasks among those that reported."""
        env = environment(spark)
        sinks = {p: see(env, frame, p, f"see-{p}", split_by="split") for p in (1, 2, 4)}
        job = env.execute_async("files", checkpoint_location=checkpoint, trigger=Trigger.available_now())
        operators = job.result().progress.operators
        ids = [number * 20 + at for number in files for at in range(20)]
        for sink in sinks.values():
            assert by_split(sink.results) == {split: [i for i in ids if i % 20 % 3 == split] for split in range(3)}
        # A streaming DataFrame never ends.
        assert not any("ended" in operators[f"see-{p}"].counters for p in sinks)
        return {p: (sink, operators[f"see-{p}"].counters["opened"]) for p, sink in sinks.items()}

    # 3 splits cannot reach 4 subtasks, but all of them are opened.
    assert {p: opened for p, (_, opened) in run(range(6)).items()} == {1: 1, 2: 2, 4: 4}
    # After a restart only new data is read, and nothing is opened again.
    write_file(folder, 6, [(120 + at, at % 3) for at in range(20)])
    for sink, opened in run(range(6, 7)).values():
        assert opened == len({record.subtask for record in sink.results})


class NoId(NamedTuple):
    number: int


class WrongType(NamedTuple):
    id: str


def test_mismatched_dataframe_is_refused_before_the_start(spark: SparkSession, checkpoint: str) -> None:
    frame = spark.range(3)
    for record_type, how, said in (
        (NoId, {}, "the DataFrame does not fit NoId: it has no column 'number'. Its columns are id bigint; select or"),
        (
            WrongType,
            {},
            "the DataFrame does not fit WrongType: column 'id' is bigint, but the field is str. Its columns",
        ),
        (dict, {"split_by": "topic"}, "split_by names column 'topic'; the DataFrame has id."),
        (int, {}, "int has no fields with types. Use a dataclass or a NamedTuple class"),
    ):
        env = environment(spark)
        rows = env.from_dataframe(frame, record_type, "numbers", **how)  # type: ignore[arg-type]
        rows.with_uid("in").map(str).to_sink(CollectSink())
        with pytest.raises(SchemaError) as refused:
            env.execute("unfit", checkpoint_location=checkpoint)
        assert said in str(refused.value)
        assert str(refused.value).startswith(f"The source numbers (uid 'in'), defined at {__file__}:")
        assert not Path(checkpoint).exists()


def test_object_that_resembles_a_dataframe_is_refused(spark: SparkSession) -> None:
    env = environment(spark, mode=BATCH)
    env.from_dataframe(NoRows(), dict).to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match="requires a Spark DataFrame, got NoRows"):
        env.execute()
