"""A job that counts numbers, for tests of savepoints that are edited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsv2 import ExecutionEnvironment
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.state import RedistributionStrategy, StateDeclarations
from dsv2.testing import ManualClock, TestSource

COUNT = StateDeclarations.value_state("count", int, default=0)
SEEN = StateDeclarations.list_state_builder("seen", int).redistribute_by(RedistributionStrategy.SPLIT).build()


class Counting(OneInputStreamProcessFunction[int, Any]):
    """Counts each key, with a timer for each, a list for each subtask, and a handle in a field."""

    def __init__(self, count: Any = COUNT) -> None:
        self.declared = count
        self.handle: Any = None

    def uses_states(self) -> Any:
        return [self.declared, SEEN]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if self.handle is None:
            self.handle = ctx.state_manager.get_state(self.declared)
        ctx.state_manager.get_state(SEEN).add(record)
        ctx.processing_time_manager.register_timer(1000)
        self.handle.update(self.handle.value() + 1)
        output.collect((record % 10, self.handle.value()))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect((ctx.state_manager.current_key, "timer"))

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(
            lambda output, partition: output.collect((partition.state_manager.current_key, "end"))
        )


def tens(number: int) -> int:
    return number % 10


def run(
    records: list[Any],
    build: Callable[[Any], Any],
    *,
    start: str | Path | None = None,
    source: str = "in",
    parallelism: int = 2,
) -> tuple[Any, list[Any]]:
    """Run a job of ``build`` on ``records``, and return its handle and its results."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[3], clock=ManualClock()))
    env.set_parallelism(parallelism)
    sink = CollectSink[Any]()
    stream = env.from_source(TestSource[Any](records), "in").with_uid(source).with_parallelism(1)
    build(stream).to_sink(sink).with_uid("out").with_parallelism(1)
    job = env.execute_async("edited", savepoint=start)
    job.await_termination()
    return job, sink.results


def counting(uid: str = "f", count: Any = COUNT) -> Callable[[Any], Any]:
    return lambda stream: stream.key_by(tens).process(Counting(count)).with_uid(uid)


REST = [*range(10), 10, 11, 12]


def counts_of(path: str, uid: str = "f", name: str = "count") -> dict[Any, Any]:
    table = Savepoint.open(path).state(uid, name).to_arrow().to_pydict()
    return dict(zip(table["key"], table["value"], strict=True)) if "key" in table else {}


def results_of(results: list[Any], last: object) -> set[Any]:
    return {key for key, what in results if what == last}
