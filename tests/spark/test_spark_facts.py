"""Facts about Spark on which the runtime depends. A release that changes one fails here, and the message says what can
be removed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2 import ExecutionEnvironment
from dsv2.graph import Plan
from dsv2.sinks import CollectSink
from runtime_spark import SparkRuntime
from runtime_spark.frames.layout import REPORT_SLOT, Layout, spark_partition
from runtime_spark.frames.session import starting


def two_levels() -> Plan:
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection(range(4)).map(abs).shuffle().map(abs).with_parallelism(2).to_sink(CollectSink())
    return env.build_plan()


def test_slot_is_in_the_partition_that_spark_computes(spark: SparkSession) -> None:
    slots = [*range(2000), -1, -2, 2**31 - 1, -(2**31), *range(10**6, 10**9, 10**6 * 7 + 1)]
    frame = spark.createDataFrame([(slot,) for slot in slots], "slot int")
    counts = (1, 2, 3, 7, 200)
    rows = frame.select("slot", *(F.expr(f"pmod(hash(slot), {count})").alias(f"of{count}") for count in counts))
    for slot, *partitions in rows.collect():
        assert partitions == [spark_partition(slot, count) for count in counts]
    # A shuffle uses the same partition.
    placed = frame.repartition(7, "slot").select("slot", F.spark_partition_id())
    assert all(spark_partition(slot, 7) == partition for slot, partition in placed.collect())


def test_group_of_a_row_depends_on_the_level(spark: SparkSession) -> None:
    layout = Layout.of(two_levels())
    slots = [REPORT_SLOT, *layout.addresses]
    frame = spark.createDataFrame([(slot,) for slot in slots], "slot int")
    rows = frame.select("slot", F.expr(layout.group_at(0)), F.expr(layout.group_at(1))).collect()
    assert len(rows) == len(slots)
    for slot, *groups in rows:
        head, _ = layout.addresses.get(slot, (None, 0))
        passing = layout.passing_groups[spark_partition(slot, layout.partitions)]
        assert groups == [slot if head in level else passing for level in layout.levels]


def query_over(spark: SparkSession, frames: DataFrame, folder: Path, check: bool) -> None:
    """Run the output of ``frames`` to its end, with the given settings only."""
    with starting(spark, 2, unchecked=not check):
        query = frames.writeStream.format("noop").option("checkpointLocation", str(folder)).trigger(availableNow=True)
        started = query.start()
    started.awaitTermination()


def test_spark_still_refuses_two_stages_in_one_query(spark: SparkSession, tmp_path: Path) -> None:
    frames = SparkRuntime(spark).compile(two_levels()).frames
    error = None
    try:
        query_over(spark, frames, tmp_path / "checked", check=True)
    except AnalysisException as refused:
        error = refused
    assert error is not None, (
        "Spark takes two stateful stages now: unsupportedOperationCheck need not be switched off any more."
    )
    assert "Multiple applyInPandasWithStates are not supported" in str(error)
    query_over(spark, frames, tmp_path / "unchecked", check=False)


def test_real_time_mode_still_runs_no_python(spark: SparkSession) -> None:
    named: Any = spark._jvm.java.lang.Class.forName  # type: ignore[union-attr]
    runtime = "org.apache.spark.sql.execution.streaming.runtime.RealTimeModeAllowlist$"
    fields = named(runtime).getDeclaredFields()  # Spark 4.2 puts the name of the class before that of the field
    field = next(field for field in fields if field.getName().endswith("allowedOperators"))
    field.setAccessible(True)
    operators = str(field.get(None))
    assert "ProjectExec" in operators  # the names are those of operators
    in_python = re.findall(r"\w*(?:Python|Pandas|InArrow)\w*", operators)
    assert not in_python, "Spark's real-time mode runs operators in Python now: see Trigger in dsv2/jobs/handle.py."
    source = named("org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream")
    real_time = named("org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode")
    assert not real_time.isAssignableFrom(source), "Python data sources can be read in real-time mode now."
