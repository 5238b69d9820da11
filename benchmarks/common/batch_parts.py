"""The parts of micro-batches, from the times that Spark records: where a small micro-batch spends its time."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = ("Stage", "median_parts", "parts_of", "stages_of")

_BEFORE_THE_WRITE = ("latestOffset", "walCommit", "getBatch", "queryPlanning")

Stage = tuple[float, float]
"""Beginning and end of a stage, in ms since the epoch."""


def stages_of(spark: SparkSession) -> list[Stage]:
    """The complete stages that the session remembers, in the order in which they began."""
    store = spark.sparkContext._jsc.sc().statusStore()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    quantiles = gateway.new_array(gateway.jvm.double, 0)
    found = store.stageList(None, False, False, quantiles, None)
    times = [
        (_ms(stage.submissionTime()), _ms(stage.completionTime())) for stage in map(found.apply, range(found.size()))
    ]
    return sorted((begin, end) for begin, end in times if begin is not None and end is not None)


def parts_of(progress: StreamingQueryProgress, stages: Iterable[Stage]) -> dict[str, float]:
    """The parts of one micro-batch in ms, in order."""
    durations = {name: progress.durationMs.get(name, 0) for name in (*_BEFORE_THE_WRITE, "addBatch", "commitOffsets")}
    begin = datetime.fromisoformat(progress.timestamp).timestamp() * 1000
    writing = begin + sum(durations[name] for name in _BEFORE_THE_WRITE)
    end = begin + progress.durationMs["triggerExecution"]
    own = [stage for stage in stages if begin <= stage[0] and stage[1] <= end]
    in_stages = {f"stage {number}": stage[1] - stage[0] for number, stage in enumerate(own, start=1)}
    before = own[0][0] - writing if own else 0.0
    between = sum(later[0] - earlier[1] for earlier, later in pairwise(own))
    after = writing + durations["addBatch"] - own[-1][1] if own else durations["addBatch"]
    parts = {
        "ask the source (latestOffset)": durations["latestOffset"],
        "log the offsets (walCommit)": durations["walCommit"],
        "plan the query (getBatch, queryPlanning)": durations["getBatch"] + durations["queryPlanning"],
        "call foreachBatch, plan and submit the job": before,
        **in_stages,
        "between the stages": between,
        "collect the rows, call the sinks": after,
        "log the commit (commitOffsets)": durations["commitOffsets"],
    }
    return {**parts, "rest of the trigger": progress.durationMs["triggerExecution"] - sum(parts.values())}


def median_parts(batches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each part over several micro-batches."""
    values: dict[str, list[float]] = defaultdict(list)
    for batch in batches:
        for name, milliseconds in batch.items():
            values[name].append(milliseconds)
    return {name: statistics.median(found) for name, found in values.items()}


def _ms(time: Any) -> float | None:
    return float(time.get().getTime()) if time.isDefined() else None
