"""Calls of a slow service from async functions, compared with one call at a time.

Each record asks a service, which runs in a process of its own and answers after 20 ms. With 100 requests in flight,
10,000 records take at least 2 seconds (the ideal).

* *Ordered* and *unordered* are an ``AsyncOneInputStreamProcessFunction`` in ``LocalRuntime(checks=False)``, with a
  capacity of 100.
* *Plain asyncio* makes the same calls with 100 tasks and no dsv2.
* *One at a time* is a function that waits for each answer, with fewer records.
* *Spark* is the ordered function in ``local[2]``: two subtasks with a capacity of 50 each, in micro-batches of 10,000
  records, after two for warm-up. *Spark, one at a time* has two subtasks that wait for each answer. *Spark, no calls*
  has a function that emits its records: what a micro-batch takes anyway.

Contestants take turns. A time is that of a whole job, on Spark that of a micro-batch with all of Spark's overhead.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any

from benchmarks.common import Arguments, Report, Sample, batch_seconds, checkpoint, conditions, spark_session
from benchmarks.common.contest import WARM_UP
from benchmarks.common.service import BlockingClient, Client, service
from dsv2 import (
    Collector,
    ExecutionEnvironment,
    ForeachBatchSink,
    MapFunction,
    OneInputStreamProcessFunction,
    PartitionedContext,
    Resource,
)
from dsv2.functions import AsyncOneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model import AsyncResource, AsyncSettings
from dsv2.sources import DataGeneratorSource
from dsv2.spi import ProcessFunction

__all__ = ("main",)

NAME = "async_calls"
LATENCY = 20
"""The latency of the service in ms."""
CAPACITY = 100
TIMES_IDEAL = 1.3
"""The maximum ratio of a time to the ideal."""
MICRO_BATCHES = WARM_UP + 1
"""Of each Spark job. Only the last one counts."""

SHORT = {"records": 500, "fewer": 20, "rounds": 1, "runtimes": ["local"]}


class Ask(AsyncOneInputStreamProcessFunction[int, int]):
    """Emits the answer to each number."""

    def __init__(self, port: int, *, capacity: int = CAPACITY, ordered: bool = True) -> None:
        self.async_settings = AsyncSettings(capacity=capacity, ordered=ordered)
        self.client = AsyncResource(partial(Client.open, port), close=Client.close)

    async def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        client = await self.client.get()
        output.collect(await client.ask(record))


class AskAndWait(OneInputStreamProcessFunction[int, int]):
    """The same, one at a time."""

    def __init__(self, port: int) -> None:
        self.client = Resource(partial(BlockingClient, port), close=BlockingClient.close)

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        output.collect(self.client.get().ask(record))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--records", type=int, default=10_000, help="records of async functions (10,000)")
    add("--fewer", type=int, default=200, help="records of functions that make one call at a time (200)")
    add("--rounds", type=int, default=5, help="measurements of each contestant (5)")
    add("--runtimes", nargs="+", choices=("local", "spark"), default=["local", "spark"], help="only these (both)")
    options = parser.parse(arguments, SHORT)
    records, fewer = options.records, options.fewer
    with ExitStack() as stack:
        port = stack.enter_context(service(LATENCY))
        spark = stack.enter_context(spark_session("calls of a service"))
        report = Report(NAME, "Calls of a slow service", conditions(spark, NAME, arguments))
        contestants: dict[str, tuple[int, Callable[[int], float]]] = {}
        if "local" in options.runtimes:
            contestants["ordered"] = records, partial(locally, lambda: Ask(port))
            contestants["unordered"] = records, partial(locally, lambda: Ask(port, ordered=False))
            contestants["plain asyncio"] = records, partial(plainly, port)
            contestants["one at a time"] = fewer, partial(locally, lambda: AskAndWait(port))
        if "spark" in options.runtimes:
            contestants["Spark"] = records, partial(on_spark, spark, lambda: Ask(port, capacity=CAPACITY // 2))
            contestants["Spark, no calls"] = records, partial(on_spark, spark, lambda: MapFunction[int, int](int))
            contestants["Spark, one at a time"] = fewer, partial(on_spark, spark, lambda: AskAndWait(port))
        found = measure(contestants, options.rounds)
    _describe(report, contestants, found, records)
    report.publish(options.results)
    return 0


def measure(contestants: Mapping[str, tuple[int, Callable[[int], float]]], rounds: int) -> dict[str, Sample]:
    """Measure all contestants in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, (records, run) in contestants.items():
            seconds[name].append(run(records))
    return {name: Sample.of(found) for name, found in seconds.items()}


def _describe(report: Report, contestants: Mapping[str, Any], found: Mapping[str, Sample], records: int) -> None:
    ideal = records * LATENCY / 1000 / CAPACITY
    rows = []
    for name, sample in found.items():
        number = contestants[name][0]
        rate = number / sample.median
        rows.append((name, number, round(rate), sample.median, sample.spread, records / rate / ideal))
    header = ("contestant", "records", "records/s", "seconds", "spread ms", "times the ideal")
    report.table(f"A service that takes {LATENCY} ms, {CAPACITY} calls in flight", header, rows)
    for name in ("ordered", "unordered", "Spark"):
        if name in found:
            report.at_most(f"{name}: times the ideal", found[name].median / ideal, TIMES_IDEAL)
    if "Spark" in found:
        seconds = found["Spark"].median - found["Spark, no calls"].median
        report.at_most("Spark, without what a micro-batch takes anyway: times the ideal", seconds / ideal, TIMES_IDEAL)


def locally(function: Callable[[], ProcessFunction], records: int) -> float:
    """Run a job in this process and return its seconds."""
    results: list[int] = []
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
    _pipeline(env, function(), records, results, parallelism=1)
    began = time.perf_counter()
    env.execute("calls")
    seconds = time.perf_counter() - began
    _check(results, records)
    return seconds


def on_spark(spark: Any, function: Callable[[], ProcessFunction], records: int) -> float:
    """Run a job on Spark and return the seconds of its last micro-batch."""
    results: list[int] = []
    env = ExecutionEnvironment.get_instance(spark=spark)
    _pipeline(env, function(), records, results, parallelism=2, micro_batches=MICRO_BATCHES)
    with checkpoint() as folder:
        job: Any = env.execute_async("calls", checkpoint_location=folder)
        job.result()
        (seconds,) = batch_seconds(job.query, MICRO_BATCHES - 1, 1)
    _check(results, records * MICRO_BATCHES)
    return seconds


def plainly(port: int, records: int) -> float:
    """Make the calls without dsv2 and return the seconds."""

    async def make_calls() -> None:
        client = await Client.open(port)
        numbers = count()

        async def call() -> None:
            while (number := next(numbers)) < records:
                await client.ask(number)

        await asyncio.gather(*(call() for _ in range(CAPACITY)))
        await client.close()

    began = time.perf_counter()
    asyncio.run(make_calls())
    return time.perf_counter() - began


def _pipeline(
    env: ExecutionEnvironment,
    function: ProcessFunction,
    records: int,
    results: list[int],
    *,
    parallelism: int,
    micro_batches: int = 1,
) -> None:
    env.set_parallelism(parallelism)
    source = DataGeneratorSource(int, count=records * micro_batches, records_per_batch=records)
    stream: Any = env.from_source(source, "numbers")
    answers = stream.process(function).with_uid("calls")
    answers.to_sink(ForeachBatchSink(lambda answers, batch_id: results.extend(answers)))


def _check(results: list[int], records: int) -> None:
    if sorted(results) != list(range(records)):
        raise AssertionError(f"{len(results)} results, {records} expected")


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import async_calls

    sys.exit(async_calls.main())
