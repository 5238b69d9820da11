"""The SQL of the tests over all events at once, in DuckDB with one thread: a limit, without state and micro-batches.

The events are generated in the measured time, as elsewhere.
"""

from __future__ import annotations

import time
from importlib.metadata import version

import duckdb
import numpy as np

from benchmarks.jobs.nexmark import RATE, number_field, result_class
from benchmarks.peers.protocol import Outcome, Task
from examples.nexmark.events import PER_ROUND, auctions, bids, people
from tests.oracles.nexmark import QUERIES

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the query once after a smaller run. A batch takes its share of the time."""
    batches = task.warm_up + task.batches
    _run(task.mode, task.records)
    begin = time.perf_counter()
    number, total = _run(task.mode, task.total)
    seconds = (time.perf_counter() - begin) / batches
    return Outcome([seconds] * task.batches, number, total, {"duckdb": version("duckdb")})


def _run(query: str, events: int) -> tuple[int, int]:
    rounds = np.arange(events // PER_ROUND)
    place = list(result_class(query)._fields).index(number_field(result_class(query)))
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, generate in (("person", people), ("auction", auctions), ("bid", bids)):
            table = generate(rounds, RATE)
            connection.register(name, table.append_column("number", [np.arange(len(table))]))
        results = connection.sql(QUERIES[query]).to_arrow_table()
    return len(results), int(np.sum(results.column(place).to_numpy()))
