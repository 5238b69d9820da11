"""The time per record by the number of keys that hold state, on the local runtime.

A job counts events by user, either with a value state, record by record, or with a declared aggregate on columns. The
first micro-batches create all keys; the measured ones update keys that are chosen evenly. The job runs in one process,
with a checkpoint.

10,000,000 keys take minutes and some GB of memory: ``--keys 10000 10000000``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter

import numpy as np
import pyarrow as pa

from benchmarks.common.machine import machine
from benchmarks.common.measure import Sample
from benchmarks.common.report import Arguments, Report
from benchmarks.common.tables import GeneratedTables, Numbers
from benchmarks.jobs.event_tables import EventRow, EventTables
from benchmarks.peers.dsv2_job import add_up
from benchmarks.peers.local import run_local
from benchmarks.peers.protocol import Task
from benchmarks.peers.running_count.on_tables import UserCount
from benchmarks.peers.table_totals import add_up_tables
from dsv2 import (
    Collector,
    ExecutionEnvironment,
    NonKeyedPartitionStream,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StateDeclaration,
    StateDeclarations,
)
from dsv2.aggregates import Count, Key

__all__ = ("main",)

NAME = "many_keys"
SHORT = {"keys": [1_000, 20_000], "records": 10_000, "batches": 1}
LIMIT = 2.0
"""The maximum ratio of the time per record with the most keys to that with the fewest."""


class Visits:
    """Generates events by index: the first ones are of different users, the others of any of them."""

    def __init__(self, users: int) -> None:
        self.users = users
        self.later = EventTables(users)

    def __call__(self, index: Numbers) -> pa.Table:
        events = self.later(index)
        users = np.where(index < self.users, index, events["user"].to_numpy())
        return events.set_column(0, "user", pa.array(users))


class CountOfUser(OneInputStreamProcessFunction[EventRow, UserCount]):
    """Counts the events of each user."""

    _count = StateDeclarations.value_state("count", int, default=0)

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._count]

    def process_record(
        self, record: EventRow, output: Collector[UserCount], ctx: PartitionedContext[UserCount]
    ) -> None:
        state = ctx.state_manager.get_state(self._count)
        count = state.value() + 1
        state.update(count)
        output.collect(UserCount(record.user, count))


def _with_state(events: NonKeyedPartitionStream[EventRow]) -> list[tuple[int, int]]:
    return add_up(events.key_by(attrgetter("user")).process(CountOfUser()).with_uid("counts"))


def _on_columns(events: NonKeyedPartitionStream[EventRow]) -> list[tuple[int, int]]:
    counts = events.key_by(attrgetter("user")).aggregate(UserCount, EventRow, user=Key(), number=Count())
    return add_up_tables(counts.with_uid("counts"), UserCount, "number")


KINDS: dict[str, Callable[[NonKeyedPartitionStream[EventRow]], list[tuple[int, int]]]] = {
    "value state": _with_state,
    "aggregate on columns": _on_columns,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--keys", type=int, nargs="+", default=[10_000, 1_000_000], help="numbers of keys (10,000 and 1,000,000)")
    add("--records", type=int, default=1_000_000, help="records per micro-batch (1,000,000)")
    add("--batches", type=int, default=3, help="measured micro-batches (3)")
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="only these (all)")
    options = parser.parse(arguments, SHORT)
    report = Report(NAME, "Time per record by number of keys", {"command": f"./run bench {NAME}", **machine()})
    rows = []
    for kind in options.kinds:
        samples = {keys: _measured(kind, keys, options.records, options.batches) for keys in sorted(options.keys)}
        fewest, most = min(samples), max(samples)
        for keys, sample in samples.items():
            times = sample.median / samples[fewest].median
            rows.append((kind, keys, sample.median / options.records * 1e6, sample.spread, times))
        claim = f"{kind}: {most:,} keys in times of {fewest:,}"
        report.at_most(claim, samples[most].median / samples[fewest].median, LIMIT)
    header = ("kind", "keys", "µs per record", "ms per micro-batch", "times the fewest keys")
    report.table(f"Local, micro-batches of {options.records:,} records", header, rows)
    report.publish(options.results)
    return 0


def _measured(kind: str, keys: int, records: int, batches: int) -> Sample:
    warm_up = -(-keys // records) + 1
    task = Task(records, batches, warm_up, keys)

    def build(env: ExecutionEnvironment) -> list[tuple[int, int]]:
        source = GeneratedTables(Visits(keys), EventRow, task.total, records, parallelism=1)
        return KINDS[kind](env.from_source(source, "events").with_uid("events"))

    outcome = run_local(build, task)
    assert outcome.results == task.total
    return Sample.of(outcome.seconds)


if __name__ == "__main__":
    # Run the importable module, not this copy of it: workers find classes by the name of their module.
    from benchmarks import many_keys

    sys.exit(many_keys.main())
