"""The job whose savepoint is kept for every version of the format, and the program that writes it.

After the version of the format has increased: ``./run python -m tests.golden_savepoints``. Earlier savepoints stay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from dsv2 import ExecutionEnvironment, JobHandle
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy, window
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.program.checked_json import from_json, to_json
from dsv2.savepoint.metadata import SAVEPOINT_VERSION
from dsv2.sinks import CollectSink
from dsv2.state import RedistributionStrategy, StateDeclarations, StateTtl
from dsv2.testing import ManualClock, Stop, TestSource
from tests.durations import ms
from tests.windows import Told

__all__ = ("GOLDEN", "READ", "RECORDS", "Sums", "record", "run")

GOLDEN = Path(__file__).parent / "golden"
RECORDS = range(120)
READ = 60
"""The number of records before the savepoint."""


class Sum(NamedTuple):
    total: int
    last: int | None = None


SUM = StateDeclarations.value_state("sum", Sum, default=Sum(0))
RECENT = StateDeclarations.list_state("recent", int, ttl=StateTtl(ms(1000)))
SEEN = StateDeclarations.list_state_builder("seen", int).redistribute_by(RedistributionStrategy.UNION).build()


class Sums(OneInputStreamProcessFunction[int, Any]):
    """Has state of every kind, timers and fields."""

    keyed_fields = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def uses_states(self) -> Any:
        return [SUM, RECENT, SEEN]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        key, states = record % 7, ctx.state_manager
        self.counts[key] = self.counts.get(key, 0) + 1
        before = states.get_state(SUM).value()
        states.get_state(SUM).update(Sum(before.total + record, record))
        states.get_state(RECENT).add(record)
        states.get_state(SEEN).add(record)
        ctx.processing_time_manager.register_timer(500)
        output.collect((record, self.counts[key], before, states.get_state(RECENT).get()))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("timer", ctx.state_manager.current_key, timestamp))


def key_of(number: int) -> int:
    return number % 7


def run(*, stop: int | None = None, savepoint: Path | None = None, parallelism: int = 2) -> tuple[JobHandle, list[Any]]:
    """Run the job until ``stop`` records have been read (None: to the end). Returns its handle and its output."""
    items = [*RECORDS] if stop is None else [*RECORDS[:stop], Stop(), *RECORDS[stop:]]
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[9], clock=ManualClock()))
    sums, windows = CollectSink[Any](), CollectSink[Any]()
    numbers: Any = env.from_source(TestSource[int](items)).with_uid("numbers")
    summed = numbers.key_by(key_of, version=1).process(Sums()).with_uid("sums").with_parallelism(parallelism)
    summed.to_sink(sums).with_uid("out")
    times = EventTimeExtension.new_watermark_generator_builder(abs).per_event_watermark().build_as_process_function()
    timed = numbers.process(times).with_uid("times").key_by(key_of, version=1)
    told = timed.process(window(WindowStrategy.sliding(ms(30), ms(10)), Told())).with_uid("windows")
    told.with_parallelism(parallelism).to_sink(windows).with_uid("windows out")
    job = env.execute_async("golden", savepoint=savepoint)
    job.await_termination()
    return job, [*sums.results, *windows.results]


def record() -> None:
    """Write the savepoint of this format version, which must not exist."""
    folder = GOLDEN / f"savepoint_{SAVEPOINT_VERSION}"
    job, _ = run(stop=READ)
    job.savepoint(folder)
    description = folder / "savepoint.json"
    without_paths = json.dumps(from_json(description.read_bytes())).replace(f"{GOLDEN.parents[1]}/", "")
    description.write_bytes(to_json(json.loads(without_paths)))


if __name__ == "__main__":
    from tests import golden_savepoints  # classes are stored under the name of their module

    golden_savepoints.record()
