"""The queries of Nexmark, with a sink that adds up their results.

Micro-batches have ``task.records`` events of all classes, at 10,000 events/s of event time. ``task.mode`` is the name
of the query. Results are counted, and their first field that is a whole number is added up.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, get_args, get_type_hints

import pyarrow as pa

from benchmarks.peers.protocol import Task
from benchmarks.peers.table_totals import add_up_tables
from dsv2 import ExecutionEnvironment
from dsv2.arrow import schema_of
from examples.nexmark.queries import CHANGES, STREAMS, UPDATES
from examples.nexmark.source import Nexmark

__all__ = ("QUERIES", "RATE", "generated", "nexmark", "number_field", "result_class", "updates")

RATE = 10_000
"""Events per second of event time."""
QUERIES: dict[str, Callable[[Nexmark], Any]] = dict(
    sorted(
        chain(STREAMS.items(), CHANGES.items(), ((name, query) for name, (query, _) in UPDATES.items())),
        key=lambda item: int(item[0][1:]),
    )
)


def updates(query: str) -> bool:
    """Return whether the number of results depends on how the events are divided."""
    return query in UPDATES or query in CHANGES


def result_class(query: str) -> type[Any]:
    """The class of the results, from the type of the stream."""
    (found,) = get_args(get_type_hints(QUERIES[query])["return"])
    kind: type[Any] = found
    return kind


def number_field(kind: type[Any]) -> str:
    """The field of results that is added up."""
    names: list[str] = [field.name for field in schema_of(kind) if pa.types.is_int64(field.type)]
    return names[0]


def nexmark(env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build the query. Returns a list that will contain the number and the sum of results, per micro-batch."""
    kind = result_class(task.mode)
    return add_up_tables(QUERIES[task.mode](generated(env, task)), kind, number_field(kind))


def generated(env: ExecutionEnvironment, task: Task) -> Nexmark:
    """The streams of events."""
    return Nexmark(env, task.total, events_per_second=RATE, splits=task.parallelism, events_per_batch=task.records)
