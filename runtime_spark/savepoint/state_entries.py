"""Reads the state of a checkpoint with Spark's state reader, as entries that are grouped by slot."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2.base.folders import Folder, LocalFolder
from dsv2.errors import ConfigurationError
from runtime_spark.checkpoint.generation import Generation
from runtime_spark.frames.layout import GROUP
from runtime_spark.frames.state_history import JOURNAL, PAGES, SUBTASK
from runtime_spark.platform.connect import is_connect
from runtime_spark.platform.folders import driver_folder

_ESCAPED = re.compile(r"[^\w\-!.~'()*,;:$&+=/@]")  # what java.net.URI escapes in a path

# The kinds of entries, in the order in which a slot has them.
EXPECTED: Final = 0
"""The slot itself."""
IN_JOURNAL: Final = 1
"""A place of its journal."""
BLOB: Final = 2
"""Its blob."""
PAGE: Final = 3
"""One of its pages."""


def state_entries(spark: SparkSession, generation: Generation) -> DataFrame:
    """Return the stored state of all slots.

    Columns: ``slot``, ``kind``, ``map`` and ``number`` of a page or a place of the journal, and ``data``. The entries
    of a slot are together in one partition, in the order of these columns.
    """
    _ = spark.streams  # Spark 4.2 starts the coordinator of state stores with it, and tasks that read state need that
    layout = generation.stored.layout
    slots = sorted(layout.addresses)
    expected = spark.createDataFrame([(slot,) for slot in slots], "slot int")
    found = [expected.select("slot", *_entry(F.lit(EXPECTED), F.lit(None), F.lit(None), F.lit(None)))]
    location = _location(spark, generation.folder)
    for level in generation.folder.numbers("state"):
        reader = spark.read.format("statestore").option("operatorId", level).option("batchId", generation.batch_id)
        if not layout.has_pages:
            states = reader.load(location)
            found.append(_blobs(states, F.col("value.groupState.blob")))
        else:
            blobs = reader.option("stateVarName", SUBTASK).load(location)
            pages = reader.option("stateVarName", PAGES).load(location)
            found += [_blobs(blobs, F.col("value.blob")), _pages(pages)]
    grouped = reduce(DataFrame.unionAll, found).repartition(layout.partitions, "slot")
    return grouped.sortWithinPartitions("slot", "kind", "map", "number")


def _location(spark: SparkSession, checkpoint: Folder) -> str:
    """Return a path of the checkpoint that Spark's state reader finds.

    It escapes the path once too often (seen with Spark 4.3.0), so it does not find one with a space, for example.

    Raises:
        ConfigurationError: There is none.
    """
    if not _ESCAPED.search(checkpoint.path):
        return checkpoint.path
    on_this_machine = (spark.conf.get("spark.master", None) or "").startswith("local") and not is_connect(spark)
    if not (isinstance(checkpoint, LocalFolder) and on_this_machine):
        raise ConfigurationError(
            f"Spark cannot read the state in {checkpoint.path}, because the path has characters such as spaces or "
            f"brackets. Move the checkpoint to another folder."
        )
    link = Path(mkdtemp(prefix="dsv2-state-", dir=driver_folder(spark)), "checkpoint")
    link.symlink_to(checkpoint.path)
    return str(link)


def _slot() -> Column:
    """The group of a state: only slots have any."""
    return F.col(f"key.{GROUP}").alias("slot")


def _blobs(states: DataFrame, blob: Column) -> DataFrame:
    return states.select(_slot(), *_entry(F.lit(BLOB), F.lit(None), F.lit(None), blob))


def _pages(pages: DataFrame) -> DataFrame:
    name = F.col("user_map_key.map")
    kind = F.when(name == JOURNAL, IN_JOURNAL).otherwise(PAGE)
    return pages.select(_slot(), *_entry(kind, name, F.col("user_map_key.number"), F.col("user_map_value.blob")))


def _entry(kind: Column, name: Column, number: Column, data: Column) -> tuple[Column, ...]:
    return (
        kind.cast("int").alias("kind"),
        name.cast("string").alias("map"),
        number.cast("long").alias("number"),
        data.cast("binary").alias("data"),
    )
