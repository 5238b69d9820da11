"""The matrix of values on Spark: what the local runtime keeps, Spark keeps as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import CollectSink, ExecutionEnvironment
from dsv2.connectors.files import read_files
from dsv2.sinks import FileSink
from runtime_spark import SparkRuntime, StateLayout, through_dataframe
from tests.values.awkward import CLASSES, VALUES, value_at
from tests.values.matrix import recorded
from tests.values.same import equal, exact
from tests.values.through_jobs import (
    build_exchange,
    build_field,
    build_key,
    build_map_keys,
    build_state,
    build_watermark,
)
from tests.values.ways import by_position, different_keys
from tests.values.wide import EmitWide, Flat, Wide, by_field, has_field

_BUILDS = {
    "exchange": build_exchange,
    "field": build_field,
    "declared state": build_state,
    "keys of a map state": build_map_keys,
    "watermark": build_watermark,
}


def accepted(way: str) -> list[int]:
    """The positions of the values that this way accepts on the local runtime."""
    return [position for position, sign in enumerate(recorded()[way]) if sign in "=~"]


def differences(
    way: str, positions: Sequence[int], received: Mapping[int, Any], *, in_any_form: bool = False
) -> list[str]:
    """The values that have not arrived as they do on the local runtime, or not in any form."""
    found = []
    for position in positions:
        sent, arrived = value_at(position), received.get(position, "nothing")
        if not (exact if recorded()[way][position] == "=" and not in_any_form else equal)(sent, arrived):
            group = VALUES[position][0]
            found.append(f"{way}: {group.family}, {group.name}: {arrived!r:.100}")
    return found


def environment(spark: SparkSession, layout: StateLayout = StateLayout.BLOB) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=layout))
    env.set_parallelism(2)
    for kind in (*CLASSES, Flat, Wide):
        env.register_type(kind)
    return env


@pytest.mark.parametrize("layout", list(StateLayout))
def test_jobs_keep_values(spark: SparkSession, checkpoint: str, layout: StateLayout) -> None:
    env = environment(spark, layout)
    sinks = {way: build(env, accepted(way)) for way, build in _BUILDS.items()}
    keys = different_keys(accepted("key and timer"))[0]
    sink_of_keys = build_key(env, keys)
    env.execute("values", checkpoint_location=checkpoint)
    found = [each for way, sink in sinks.items() for each in differences(way, accepted(way), by_position(sink.results))]
    assert found + differences("key and timer", keys, by_position(sink_of_keys.results)) == []


def test_parquet_keeps_values(spark: SparkSession, tmp_path: Path) -> None:
    """Other formats: test_sinks.py, which compares their bytes."""
    positions = [position for position in accepted("Parquet") if has_field(Wide, position)]
    env = environment(spark)
    env.set_execution_mode("batch")
    path = str(tmp_path / "values")
    env.from_collection(positions).process(EmitWide(Wide)).to_sink(FileSink(path, schema=Wide))
    env.execute("values")
    rows = read_files(path).to_arrow().to_pylist(maps_as_pydicts="strict")
    assert differences("Parquet", positions, by_field(rows)) == []


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_dataframes_keep_values(spark: SparkSession, zone: str) -> None:
    positions = [
        position
        for position in accepted("Parquet")
        if has_field(Wide, position) and (zone == "UTC" or VALUES[position][0].name != "years 1 and 9999")
    ]
    env, sink = environment(spark), CollectSink[Any]()
    env.set_execution_mode("batch")
    values = env.from_collection(positions).process(EmitWide(Wide))
    through_dataframe(env, values, lambda frame: frame, Wide, Wide).to_sink(sink)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        env.execute("values")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    received = by_field(map(vars, sink.results))
    assert differences("Parquet", positions, received, in_any_form=True) == []  # times are in the zone of the session
