"""A watermark generator on each side, ``key_by`` and ``join``."""

from __future__ import annotations

from datetime import timedelta

from benchmarks.jobs.interval_join import BEFORE, OFFERS, ORDERS, Side, Sided, matched, product_of, time_of
from benchmarks.peers.dsv2_job import add_up, run_dsv2
from benchmarks.peers.protocol import Outcome, Task
from dsv2 import Collector, ExecutionEnvironment, KeyedPartitionStream, RuntimeContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinFunction, JoinMode, join
from dsv2.sources import DataGeneratorSource

__all__ = ("measure", "pipeline")


class Match(JoinFunction[Sided, Sided, tuple[int, int, int]]):
    """Joins a pair with ``matched``."""

    def process_record(
        self, left: Sided, right: Sided, output: Collector[tuple[int, int, int]], ctx: RuntimeContext
    ) -> None:
        output.collect(matched(left, right))


def measure(task: Task) -> Outcome:
    """Run the pipeline."""
    return run_dsv2(lambda env: pipeline(env, task), task)


def pipeline(env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build the pipeline of offers and orders."""
    offers = _side(env, "offers", Side(task.keys, OFFERS), task)
    orders = _side(env, "orders", Side(task.keys, ORDERS), task)
    pairs = join(Match(), JoinMode.interval(timedelta(0), timedelta(milliseconds=BEFORE)))
    return add_up(offers.connect_and_process(orders, pairs).with_uid("pairs"))


def _side(env: ExecutionEnvironment, name: str, side: Side, task: Task) -> KeyedPartitionStream[int, Sided]:
    source = DataGeneratorSource(side, count=task.total // 2, records_per_batch=task.records // 2)
    generator = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
    timed = env.from_source(source, name).with_uid(name).process(generator).with_uid(f"times of {name}")
    return timed.key_by(product_of)
