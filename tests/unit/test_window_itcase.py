"""Flink's ``WindowITCase`` in full: 10,000 elements, where element ``i`` is at ``i`` seconds.

The conformance programs test the same with fewer elements on every runtime. Here the state of the many keys and windows
takes more than a page, and is split anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.extension.window import (
    OneInputWindowStreamProcessFunction,
    TwoOutputWindowStreamProcessFunction,
    WindowContext,
    WindowStrategy,
    window,
)
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclaration, StateDeclarations
from tests.durations import ms
from tests.support import two_inputs
from tests.windows import Event, FlinkGenerator, Told, ToldOfTwo

ELEMENTS = range(10_000)
SUM = sum(ELEMENTS)
SECOND = 1000
TEN_SECONDS = WindowStrategy.tumbling(ms(10 * SECOND))
RUNTIMES = {"at once": LocalRuntime(), "cut and restarted": LocalRuntime(batches=(997, 3001), seed=2)}

each_runtime = pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)


def seconds(element: int) -> int:
    return element * SECOND


def with_breaks(element: int) -> int:
    """The element with five additional seconds after every five elements."""
    return (element + element // 5 * 5) * SECOND


def parity(element: int) -> int:
    return element % 2


def one_key(element: int) -> int:
    return 0


def run(
    runtime: LocalRuntime, build: Callable[[Any], Any], time_of: Callable[[int], int] = seconds
) -> list[tuple[Any, ...]]:
    """Output of ``build(timed)``, where ``timed`` is a stream of the elements with event time."""
    env, sink = ExecutionEnvironment.get_instance(runtime), CollectSink[tuple[Any, ...]]()
    build(env.from_collection(ELEMENTS).process(FlinkGenerator(time_of))).to_sink(sink)
    env.execute("WindowITCase")
    return sink.results


def fired(events: list[Event]) -> list[Event]:
    """Key, start, end and the records of each input, for every trigger."""
    return [event[1:] for event in events if event[0] == "trigger"]


def by_parity(strategy: WindowStrategy) -> Callable[[Any], Any]:
    return lambda timed: timed.key_by(parity).process(window(strategy, Told()))


@each_runtime
def test_global(runtime: LocalRuntime) -> None:
    windows = fired(run(runtime, by_parity(WindowStrategy.global_())))
    evens, odds = tuple(ELEMENTS[::2]), tuple(ELEMENTS[1::2])
    assert sorted(windows) == [(0, -1, -1, evens), (1, -1, -1, odds)]


@each_runtime
def test_tumbling(runtime: LocalRuntime) -> None:
    windows = fired(run(runtime, by_parity(TEN_SECONDS)))
    assert {len(records) for *_, records in windows} == {5}
    assert sum(sum(records) for *_, records in windows) == SUM


@each_runtime
def test_sliding(runtime: LocalRuntime) -> None:
    windows = fired(run(runtime, by_parity(WindowStrategy.sliding(ms(10 * SECOND), ms(SECOND)))))
    for key in (0, 1):
        starts = [start for k, start, *_ in windows if k == key]
        assert {later - earlier for earlier, later in pairwise(starts)} == {SECOND}
    assert Counter(n for *_, records in windows for n in records) == dict.fromkeys(ELEMENTS, 10)


@each_runtime
def test_session(runtime: LocalRuntime) -> None:
    sessions = window(WindowStrategy.session(ms(3 * SECOND)), Told())
    windows = fired(run(runtime, lambda timed: timed.key_by(one_key).process(sessions), with_breaks))
    assert [records for *_, records in windows] == [tuple(ELEMENTS[first : first + 5]) for first in ELEMENTS[::5]]


class CountAndSum(OneInputWindowStreamProcessFunction[int, tuple[int, int]]):
    """Keeps no records, but two states of each window."""

    COUNT = StateDeclarations.value_state("count", int, 0)
    TOTAL = StateDeclarations.value_state("total", int, 0)

    def use_window_states(self) -> Collection[StateDeclaration]:
        return self.COUNT, self.TOTAL

    def on_record(self, record: int, output: Any, ctx: Any, window: WindowContext) -> None:
        for state, amount in ((self.COUNT, 1), (self.TOTAL, record)):
            handle = window.get_window_state(state)
            handle.update(handle.value() + amount)

    def on_trigger(self, output: Any, ctx: Any, window: WindowContext) -> None:
        output.collect((window.get_window_state(self.COUNT).value(), window.get_window_state(self.TOTAL).value()))


@each_runtime
def test_window_states(runtime: LocalRuntime) -> None:
    counting = window(WindowStrategy.tumbling(ms(5 * SECOND)), CountAndSum())
    results = run(runtime, lambda timed: timed.key_by(one_key).process(counting))
    assert [count for count, _ in results] == [5] * 2000
    assert sum(total for _, total in results) == SUM


@each_runtime
def test_global_stream(runtime: LocalRuntime) -> None:
    windows = fired(
        run(runtime, lambda timed: timed.global_().process(window(WindowStrategy.tumbling(ms(5 * SECOND)), Told())))
    )
    assert {len(records) for *_, records in windows} == {5}
    assert sum(sum(records) for *_, records in windows) == SUM


@each_runtime
def test_two_inputs(runtime: LocalRuntime) -> None:
    def build(timed: Any) -> Any:
        return timed.key_by(parity).connect_and_process(timed.key_by(parity), window(TEN_SECONDS, ToldOfTwo()))

    windows = fired(run(runtime, build))
    assert {(len(left), len(right)) for *_, left, right in windows} == {(5, 5)}
    assert sum(sum(left) + sum(right) for *_, left, right in windows) == 2 * SUM


class ToBoth(TwoOutputWindowStreamProcessFunction[int, Event, Event]):
    """Emits the contents of a window to both outputs."""

    def on_trigger(self, first_output: Any, second_output: Any, ctx: Any, window: Any) -> None:
        for output in (first_output, second_output):
            output.collect(("trigger", 0, window.start_time, window.end_time, tuple(window.get_all_records())))


@each_runtime
def test_two_outputs(runtime: LocalRuntime) -> None:
    def build(timed: Any) -> Any:
        both = timed.key_by(parity).process(window(TEN_SECONDS, ToBoth()))
        return both.first.connect_and_process(both.second, two_inputs(**dict.fromkeys(RECORDS, pass_on)))

    windows = fired(run(runtime, build))
    assert {len(records) for *_, records in windows} == {5}
    assert sum(sum(records) for *_, records in windows) == 2 * SUM


RECORDS = ("process_record_from_first_input", "process_record_from_second_input")


def pass_on(record: Any, output: Any, ctx: Any) -> None:
    output.collect(record)
