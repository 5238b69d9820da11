"""Reads the state of a checkpoint with Spark's state reader, as entries that are grouped by slot."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from runtime_spark.layout import StateLayout
from runtime_spark.map_stage import JOURNAL, PAGES, SUBTASK
from runtime_spark.savepoint.basis import SavepointBasis

__all__ = ("BLOB", "EXPECTED", "IN_JOURNAL", "PAGE", "state_entries")

# The kinds of entries, in the order in which a slot has them.
EXPECTED: Final = 0
"""The slot itself."""
IN_JOURNAL: Final = 1
"""A place of its journal."""
BLOB: Final = 2
"""Its blob."""
PAGE: Final = 3
"""One of its pages."""


def state_entries(spark: SparkSession, basis: SavepointBasis) -> DataFrame:
    """Return the stored state of all slots.

    Columns: ``slot``, ``kind``, ``map`` and ``number`` of a page or a place of the journal, and ``data``. The entries
    of a slot are together in one partition, in the order of these columns.
    """
    slots = sorted(basis.placement.addresses)
    expected = spark.createDataFrame([(slot,) for slot in slots], "slot int")
    found = [expected.select("slot", *_entry(F.lit(EXPECTED), F.lit(None), F.lit(None), F.lit(None)))]
    layout = basis.manifest["layout"]
    for level in basis.checkpoint.numbers("state"):
        reader = spark.read.format("statestore").option("operatorId", level).option("batchId", basis.batch_id)
        if layout["state"] == StateLayout.BLOB.value:
            states = reader.load(basis.checkpoint.path)
            found.append(_blobs(states, F.col("value.groupState.blob")))
        else:
            blobs = reader.option("stateVarName", SUBTASK).load(basis.checkpoint.path)
            pages = reader.option("stateVarName", PAGES).load(basis.checkpoint.path)
            found += [_blobs(blobs, F.col("value.blob")), _pages(pages)]
    grouped = reduce(DataFrame.unionAll, found).repartition(layout["partitions"], "slot")
    return grouped.sortWithinPartitions("slot", "kind", "map", "number")


def _blobs(states: DataFrame, blob: Column) -> DataFrame:
    return states.select(F.col("key.slot"), *_entry(F.lit(BLOB), F.lit(None), F.lit(None), blob))


def _pages(pages: DataFrame) -> DataFrame:
    name = F.col("user_map_key.map")
    kind = F.when(name == JOURNAL, IN_JOURNAL).otherwise(PAGE)
    return pages.select(
        F.col("key.slot"), *_entry(kind, name, F.col("user_map_key.number"), F.col("user_map_value.blob"))
    )


def _entry(kind: Column, name: Column, number: Column, data: Column) -> tuple[Column, ...]:
    return (
        kind.cast("int").alias("kind"),
        name.cast("string").alias("map"),
        number.cast("long").alias("number"),
        data.cast("binary").alias("data"),
    )
