"""Ways on the local runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from dsv2 import CollectSink, ExecutionEnvironment
from dsv2.aggregates import First, Max
from dsv2.local import LocalRuntime
from tests.values.awkward import CLASSES
from tests.values.columns import (
    build_aggregate,
    build_arrow_source,
    build_map_tables,
    build_pandas_source,
    build_table_sink,
)
from tests.values.files import through_files
from tests.values.through_jobs import (
    build_exchange,
    build_field,
    build_key,
    build_map_keys,
    build_state,
    build_watermark,
)
from tests.values.ways import Way, by_position, different_keys, of_one_group, of_one_type

Build = Callable[[ExecutionEnvironment, Sequence[int]], CollectSink[Any]]


def environment() -> ExecutionEnvironment:
    """A strict local environment with two subtasks, in which the classes of all values are registered."""
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    env.set_parallelism(2)
    for kind in CLASSES:
        env.register_type(kind)
    return env


def _run(build: Build, positions: Sequence[int]) -> Mapping[int, Any]:
    env = environment()
    sink = build(env, positions)
    env.execute("values")
    return by_position(sink.results)


def jobs() -> list[Way]:
    """The ways through a job."""
    return [
        Way("exchange", partial(_run, build_exchange)),
        Way("field", partial(_run, build_field)),
        Way("declared state", partial(_run, build_state)),
        Way("keys of a map state", partial(_run, build_map_keys)),
        Way("key and timer", partial(_run, build_key), different_keys),
        Way("watermark", partial(_run, build_watermark)),
    ]


def columns() -> list[Way]:
    """The ways through columns."""
    parts: dict[str, Callable[[str], Any]] = {"First": First, "Max": Max}
    aggregates = [
        Way(
            f"{name} in {form}",
            partial(_run, partial(build_aggregate, part=part("value"), selector=selector)),
            of_one_type,
        )
        for name, part in parts.items()
        for form, selector in (("columns", attrgetter("position")), ("records", _position))
    ]
    return [
        Way("from Arrow", partial(_run, build_arrow_source), of_one_group),
        Way("from pandas", partial(_run, build_pandas_source), of_one_group),
        Way("function on tables", partial(_run, build_map_tables), of_one_type),
        Way("sink on tables", _to_tables, of_one_type),
        *aggregates,
    ]


def _position(record: Any) -> Any:
    return record.position


def _to_tables(positions: Sequence[int]) -> Mapping[int, Any]:
    env, received = environment(), list[Any]()
    build_table_sink(env, positions, received)
    env.execute("values")
    return by_position(received)


def files() -> list[Way]:
    """The ways through files."""
    formats = {
        "Parquet": ("parquet", ()),
        "JSON files": ("json", ()),
        "CSV": ("csv", ()),
        "folders": ("json", ("value",)),
    }
    return [
        Way(name, partial(through_files, environment, {}, format, partition_by), of_one_type)
        for name, (format, partition_by) in formats.items()
    ]
