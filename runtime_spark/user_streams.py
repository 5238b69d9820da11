"""Counts the streams of a streaming DataFrame, each of which has an offset in Spark's offset log."""

from __future__ import annotations

from pyspark.sql import DataFrame

__all__ = ("count_streams",)


def count_streams(dataframe: DataFrame) -> int:
    """Return the number of streams that ``dataframe`` reads, 0 for a batch DataFrame.

    PySpark has no public way to ask for them before the query runs.
    """
    if not dataframe.isStreaming:
        return 0
    leaves = dataframe._jdf.queryExecution().analyzed().collectLeaves()
    return sum(leaves.apply(place).isStreaming() for place in range(leaves.size()))
