"""The streams of a streaming DataFrame, each of which has an offset in Spark's offset log."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame


def count_streams(dataframe: DataFrame) -> int:
    """Return the number of streams that ``dataframe`` reads, 0 for a batch DataFrame.

    PySpark has no public way to ask for them before the query runs.
    """
    return len(_streams_of(dataframe))


def reads_the_same(dataframe: DataFrame, other: DataFrame) -> bool:
    """Return whether two DataFrames read the same streams, each as often as the other."""
    own, others = _streams_of(dataframe), _streams_of(other)
    return len(own) == len(others) and all(one.equals(another) for one, another in zip(own, others, strict=True))


def _streams_of(dataframe: DataFrame) -> list[Any]:
    if not dataframe.isStreaming:
        return []
    leaves = dataframe._jdf.queryExecution().analyzed().collectLeaves()
    return [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]
