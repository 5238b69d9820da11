"""The job whose savepoint is kept for every version of the format, and the program that writes it.

After the version of the format has increased: ``./run python -m tests.golden_savepoints``. Earlier savepoints stay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsv2 import ErrorPolicy, ExecutionEnvironment, JobHandle
from dsv2.checkpoint.record import RECORD_VERSION
from dsv2.checks.json_documents import from_json, to_json
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, join
from dsv2.extension.window import CountTrigger, DeltaTrigger, WindowStrategy
from dsv2.extension.window.process_functions import aggregated, reduced, windowed
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.state import aggregate_of
from dsv2.testing import ManualClock, Stop, TestSource
from tests import ROOT
from tests.durations import ms
from tests.golden_functions import (
    FIVES,
    CountsSpans,
    Gathers,
    OneIsAhead,
    OneIsIdle,
    Picky,
    Ruled,
    Sums,
    Times,
    key_of,
    paired,
    told,
)
from tests.spans import Item, Spans
from tests.windows import StatefulWindowRecorder, WindowRecorder

GOLDEN = ROOT / "tests" / "golden"
RECORDS = range(120)
READ = 60
"""The number of records before the savepoint."""

SPANS = {"a": 70, "b": 50}
"""The splits of a source, of which half have been read."""

_COUNT: Any = aggregate_of(lambda: 0, lambda number, count: count + 1, lambda count: ("count", count))
any_join: Any = join  # each of their overloads accepts one type


def span_of(item: Item) -> str:
    return item.span


def is_first_key(number: int) -> bool:
    return key_of(number) == 0


def distance(first: int, second: int) -> float:
    return second - first


def run(
    *, stop: int | None = None, savepoint: Path | None = None, parallelism: int = 2, checks: bool = True
) -> tuple[JobHandle, list[Any]]:
    """Run the job until ``stop`` records have been read (None: to the end). Returns its handle and its output.

    ``checks``: With the checks of the local runtime.
    """
    items = [*RECORDS] if stop is None else [*RECORDS[:stop], Stop(), *RECORDS[stop:]]
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[9], checks=checks, clock=ManualClock()))
    job = _Job(env, items, parallelism)
    job.add_functions()
    job.add_windows()
    job.add_joins()
    job.add_channels()
    handle = env.execute_async("golden", savepoint=savepoint)
    handle.await_termination()
    return handle, job.sink.results


class _Job:
    """The pipeline. ``parallelism`` is that of all operators whose state may move."""

    def __init__(self, env: ExecutionEnvironment, items: list[Any], parallelism: int) -> None:
        self._env = env
        self._parallelism = parallelism
        self.sink = CollectSink[Any]()
        self._numbers: Any = env.from_source(TestSource[int](items)).with_uid("numbers")
        times: Any = EventTimeExtension.new_watermark_generator_builder(abs).per_event_watermark()
        self._timed = self._numbers.process(times.build_as_process_function()).with_uid("times")
        self._keyed = self._numbers.key_by(key_of, version=1)
        self._keyed_times = self._timed.key_by(key_of, version=1)

    def _end(self, stream: Any, uid: str) -> Any:
        stream.with_uid(uid).with_parallelism(self._parallelism).to_sink(self.sink).with_uid(f"{uid} out")
        return stream

    def add_functions(self) -> None:
        self._end(self._keyed.process(Sums()), "sums")
        rules = self._env.from_collection([3]).with_uid("rules").broadcast()  # ends in the first micro-batch
        self._end(self._keyed.connect_and_process(rules, Ruled(READ)), "ruled")
        picky = self._numbers.shuffle().process(Picky())
        picky.with_error_policy(ErrorPolicy().dead_letter(ValueError).limit(total=100))
        self._end(picky, "picky")
        picky.side_output(FIVES).to_sink(self.sink).with_uid("fives")
        picky.dead_letters(int).map(told).with_uid("letters").to_sink(self.sink).with_uid("letters out")

    def add_windows(self) -> None:
        for uid, function in (
            ("windows", windowed(WindowStrategy.sliding(ms(30), ms(10)), WindowRecorder())),
            ("window states", windowed(WindowStrategy.tumbling(ms(50)), StatefulWindowRecorder())),
            ("sessions", reduced(WindowStrategy.session(ms(8)), max)),
            ("count windows", windowed(WindowStrategy.count(5), WindowRecorder())),
            ("fired", aggregated(WindowStrategy.global_().with_trigger(CountTrigger(4)), _COUNT)),
            (
                "purged",
                windowed(WindowStrategy.tumbling(ms(50)).with_trigger(DeltaTrigger(20, distance)), WindowRecorder()),
            ),
        ):
            self._end(self._keyed_times.process(function), uid)

    def add_joins(self) -> None:
        first, second = self._keyed_times, self._timed.key_by(key_of, version=1)
        for uid, function in (
            ("interval join", any_join(paired, JoinMode.interval(ms(-7), ms(7)))),
            ("window join", any_join(paired, JoinMode.window(WindowStrategy.tumbling(ms(25))))),
            ("temporal join", any_join(paired, JoinMode.temporal())),
        ):
            self._end(first.connect_and_process(second, function), uid)
        few = (self._numbers.filter(is_first_key).with_uid(f"first key {number}") for number in (1, 2))
        lefts, rights = (numbers.key_by(key_of, version=1) for numbers in few)
        self._end(lefts.connect_and_process(rights, join(paired)), "join")

    def add_channels(self) -> None:
        spans: Any = self._env.from_source(Spans(SPANS, limit=5)).with_uid("spans").with_parallelism(2)
        self._end(spans.key_by(span_of, version=1).process(CountsSpans()), "spans counted")
        ahead = self._numbers.shuffle().process(OneIsAhead()).with_uid("ahead").with_parallelism(2)
        ahead.global_().process(Gathers()).with_uid("gathers").to_sink(self.sink).with_uid("gathers out")
        idle = self._timed.shuffle().process(OneIsIdle()).with_uid("idle").with_parallelism(2)
        idle.global_().process(Times()).with_uid("event times").to_sink(self.sink).with_uid("event times out")


def record() -> None:
    """Write the savepoint of this format version, which must not exist."""
    folder = GOLDEN / f"savepoint_{RECORD_VERSION}"
    job, _ = run(stop=READ)
    job.savepoint(folder)
    description = folder / "savepoint.json"
    without_paths = json.dumps(from_json(description.read_bytes())).replace(f"{ROOT}/", "")
    description.write_bytes(to_json(json.loads(without_paths)))


if __name__ == "__main__":
    from tests import golden_savepoints  # classes are stored under the name of their module

    golden_savepoints.record()
