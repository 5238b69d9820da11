"""DataFrames as columns: rows of a DataFrame reach functions that take tables as they are."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2 import ExecutionEnvironment, RuntimeExecutionMode
from dsv2.arrow import ArrowCollector, ArrowProcessFunction, map_tables, schema_of
from dsv2.context import NonPartitionedContext, PartitionedContext
from dsv2.sinks import CollectSink

pytestmark = pytest.mark.spark


class Sale(NamedTuple):
    """A row."""

    shop: str
    amount: int


class Total(NamedTuple):
    """Of a shop."""

    shop: str
    amount: int
    rows: int


class Totals(ArrowProcessFunction[Total, Total]):
    """The totals at the end."""

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
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(2)
    env.set_execution_mode(mode)
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
    assert by_task.records_out < 300  # each task has added its rows up before they went on
