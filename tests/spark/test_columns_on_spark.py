"""DataFrames and sinks as columns: rows reach functions on tables, and sinks, without conversion to records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2 import RuntimeExecutionMode
from dsv2.arrow import ArrowCollector, ArrowForeachBatchSink, ArrowProcessFunction, ArrowSink, map_tables, schema_of
from dsv2.connectors.files import FilesSource
from dsv2.connectors.formats import json_records
from dsv2.model.context import NonPartitionedContext, PartitionedContext
from dsv2.sinks import CollectSink, FileSink
from runtime_spark import to_dataframe
from runtime_spark.frames.schema import schema_of as schema_of_records
from tests.conformance.programs_columns import WritesTables
from tests.spark.programs import environment


class Sale(NamedTuple):
    """A row."""

    shop: str
    amount: int


class Total(NamedTuple):
    """The total of a shop."""

    shop: str
    amount: int
    rows: int


class Totals(ArrowProcessFunction[Total, Total]):
    """Emits the totals at the end."""

    def __init__(self) -> None:
        self.totals = schema_of(Total).empty_table()

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Total], ctx: PartitionedContext[Total]) -> None:
        self.totals = added_up(pa.concat_tables([self.totals, batch]))

    def end_input(self, output: ArrowCollector[Total], ctx: NonPartitionedContext[Total]) -> None:
        output.collect_batch(self.totals)


def added_up(totals: pa.Table) -> pa.Table:
    """One row for each shop."""
    sums = totals.group_by("shop").aggregate([("amount", "sum"), ("rows", "sum")])
    return sums.rename_columns(["shop", "amount", "rows"])


def of_sales(sales: pa.Table) -> pa.Table:
    """The totals of some sales."""
    ones = pa.array([1] * sales.num_rows, pa.int64())
    return added_up(sales.append_column("rows", ones))


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_tables_of_a_dataframe_are_added_up_by_key(
    spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode
) -> None:
    number = F.col("id")
    frame = spark.range(0, 30_000, 1, 3).select(
        F.concat(F.lit("shop "), number % 7).alias("shop"), (number % 100).cast("int").alias("amount"), number
    )
    sink = CollectSink[Total]()
    env = environment(spark, 2, mode)
    sales = env.from_dataframe(frame, Sale)
    totals = sales.process(map_tables(of_sales, Sale, Total)).with_uid("by task")
    totals.key_by(attrgetter("shop")).process(Totals()).to_sink(sink)
    result = env.execute("sales", checkpoint_location=checkpoint if mode is RuntimeExecutionMode.STREAMING else None)
    expected = [
        Total(f"shop {shop}", sum(n % 100 for n in range(shop, 30_000, 7)), len(range(shop, 30_000, 7)))
        for shop in range(7)
    ]
    assert sorted(sink.results) == expected
    by_task = result.progress.operators["by task"]
    assert by_task.records_in == 30_000
    assert by_task.records_out < 300  # each task has aggregated its rows before sending them


@dataclass(frozen=True)
class Sealed:
    """A record that cannot be constructed. It exists in columns only."""

    shop: str
    amount: int
    at: datetime

    def __post_init__(self) -> None:
        raise AssertionError("single records are not expected")


def sealed(sales: pa.Table) -> pa.Table:
    """Each sale with a date, as many days after the start as its amount."""
    days = pa.array([datetime(2024, 1, 1) + timedelta(days=amount) for amount in sales["amount"].to_pylist()])
    return sales.append_column("at", days)


class SealedInFiles(WritesTables, ArrowSink[Sealed]):
    """With the columns of ``Sealed``."""


def test_tables_reach_sinks_unconverted(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    batches: dict[int, pa.Table] = {}
    frame = spark.range(0, 300, 1, 2).select(F.concat(F.lit("shop "), F.col("id") % 2).alias("shop"), amount_of("id"))
    env = environment(spark, 2)
    sales = env.from_dataframe(frame, Sale, records_per_batch=100).process(map_tables(sealed, Sale, Sealed))
    kept = sales.key_by(attrgetter("shop")).process(Keep()).with_uid("keep")
    kept.to_sink(FileSink(tmp_path / "files", schema=Sealed))
    kept.to_sink(SealedInFiles(tmp_path / "tables"))
    kept.to_sink(ArrowForeachBatchSink(lambda table, batch_id: batches.update({batch_id: table}), Sealed))
    env.execute("sealed", checkpoint_location=checkpoint)
    amounts = list(range(300))
    assert sorted(pa.concat_tables(batches.values())["amount"].to_pylist()) == amounts
    written = [pq.ParquetFile(file).read() for file in (tmp_path / "tables").iterdir()]
    assert sorted(pa.concat_tables(written)["amount"].to_pylist()) == amounts
    rows = spark.read.parquet(str(tmp_path / "files")).collect()
    assert sorted((row.amount, row.at, row.shop) for row in rows) == [
        (amount, datetime(2024, 1, 1) + timedelta(days=amount), f"shop {amount % 2}") for amount in amounts
    ]


def test_sources_in_tasks_read_columns(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    (tmp_path / "sales").mkdir()
    lines = "\n".join(json.dumps({"shop": "shop", "amount": number}) for number in range(50))
    (tmp_path / "sales" / "sales.json").write_text(lines, encoding="utf-8")
    table = pa.table({"shop": ["shop"] * 50, "amount": range(50), "at": [datetime(2024, 1, 1)] * 50})
    env = environment(spark, 2)
    sales = env.from_dataframe(table, Sealed)
    sales.to_sink(FileSink(tmp_path / "a", schema=Sealed))
    sales.process(Keep()).to_sink(SealedInFiles(tmp_path / "tables"))
    env.from_source(FilesSource(tmp_path / "sales", json_records(Sale))).to_sink(FileSink(tmp_path / "b", schema=Sale))
    env.execute("sealed", checkpoint_location=checkpoint)
    for name in ("a", "b"):
        assert sorted(row.amount for row in spark.read.parquet(str(tmp_path / name)).collect()) == [*range(50)]
    written = [pq.ParquetFile(file).read() for file in (tmp_path / "tables").iterdir()]
    assert sorted(pa.concat_tables(written)["amount"].to_pylist()) == [*range(50)]


def amount_of(column: str) -> Column:
    """The amount of a sale."""
    return F.col(column).cast("long").alias("amount")


class Keep(ArrowProcessFunction[Sealed, Sealed]):
    """Forwards tables."""

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Sealed], ctx: PartitionedContext[Sealed]) -> None:
        output.collect_batch(batch)


def test_dataframe_is_created_from_columns(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "shop string, amount long")
    env = environment(spark, mode=RuntimeExecutionMode.BATCH)
    sales = env.from_dataframe(frame, Sale).process(map_tables(sealed, Sale, Sealed))
    found = to_dataframe(env, sales, Sealed)
    assert found.schema == schema_of_records(Sealed)
    assert sorted(map(tuple, found.collect())) == [("a", 1, datetime(2024, 1, 2)), ("b", 2, datetime(2024, 1, 3))]
