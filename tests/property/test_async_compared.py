"""Async functions compared with processing one record after the other, with failures, retries and timeouts."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ErrorPolicy, StateDeclarations, new_builder
from dsv2.functions import AsyncOneInputStreamProcessFunction
from dsv2.model import AsyncSettings
from dsv2.testing import OneInputHarness, StampedRecord
from dsv2.watermark import WatermarkHandlingResult
from tests.durations import ms
from tests.profiles import examples

TOTAL = StateDeclarations.value_state("total", int, default=0)
SEEN = StateDeclarations.list_state("seen", int)
MARK = new_builder("mark").type_long().combine_function_max().build()
POLICY = ErrorPolicy().retry(ConnectionError, times=2, backoff=ms(3), jitter=1).skip(ValueError, TimeoutError)
TIMEOUT = 200
RUNNING: list[int] = []


class Item(NamedTuple):
    """A record: it fails ``failures`` times, for good with ``poison``, and waits ``wait`` ms each time."""

    number: int
    key: int
    wait: int
    failures: int
    poison: bool

    @property
    def succeeds(self) -> bool:
        """True if it is emitted. A wait of more than ``TIMEOUT`` never ends."""
        return not self.poison and self.wait < TIMEOUT


Input: TypeAlias = Item | int | None
"""A record, a watermark, or the end of a micro-batch."""


def started(change: int) -> None:
    """Count the calls in flight, in this process: harnesses copy functions."""
    RUNNING.append(change)


class Service(AsyncOneInputStreamProcessFunction[Item, tuple[int, int]]):
    """Adds up the numbers of a key. Fails as the record says, in the middle of its changes."""

    def __init__(self, settings: AsyncSettings, keyed: bool) -> None:
        self.async_settings = settings
        self.keyed = keyed
        self.failed: dict[int, int] = {}

    def uses_states(self) -> Any:
        return [TOTAL, SEEN] if self.keyed else []

    async def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        started(1)
        try:
            output.collect((record.number, await self.total(record, ctx) if self.keyed else 0))
            await asyncio.sleep(record.wait / 1000)
            if record.wait >= TIMEOUT:
                await asyncio.Event().wait()
            if record.poison:
                raise ValueError
            if self.failed.get(record.number, 0) < record.failures:
                self.failed[record.number] = self.failed.get(record.number, 0) + 1
                raise ConnectionError
        finally:
            started(-1)

    async def total(self, record: Item, ctx: Any) -> int:
        state = ctx.state_manager
        assert state.current_key == record.key
        before: int = state.get_state(TOTAL).value()
        state.get_state(TOTAL).update(-1)
        state.get_state(SEEN).add(record.number)
        await asyncio.sleep(record.wait / 2000)
        assert state.current_key == record.key
        state.get_state(TOTAL).update(before + record.number)
        ctx.processing_time_manager.register_timer(10**9 + record.number)
        return before + record.number

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        """Allows timers."""


class AwareService(Service):
    """Receives the watermarks."""

    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        assert not RUNNING or sum(RUNNING) == 0  # nothing is in flight
        return WatermarkHandlingResult.PEEK


@dataclass(frozen=True)
class Case:
    """The input, and how it is processed."""

    inputs: Sequence[Input]
    ordered: bool
    keyed: bool
    aware: bool
    capacity: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Random cases."""
    waits = st.one_of(st.integers(0, 20), st.just(TIMEOUT))
    kinds = draw(st.lists(st.sampled_from("rrrrrrmb"), max_size=25))
    inputs: list[Input] = []
    for number, kind in enumerate(kinds):
        if kind == "r":
            failures, poison = draw(st.integers(0, 2)), draw(st.integers(0, 4)) == 0
            inputs.append(Item(number, draw(st.integers(0, 3)), draw(waits), failures, poison))
        else:
            inputs.append(number if kind == "m" else None)
    flags = st.booleans()
    return Case(inputs, draw(flags), draw(flags), draw(flags), draw(st.integers(1, 5)))


def harness_of(case: Case) -> OneInputHarness[Item, tuple[int, int]]:
    settings = AsyncSettings(capacity=case.capacity, ordered=case.ordered, timeout=ms(10 * TIMEOUT))
    function = (AwareService if case.aware else Service)(settings, case.keyed)
    key = (lambda item: item.key) if case.keyed else None
    return OneInputHarness(function, key=key, declarations=[MARK], error_policy=POLICY)


def parts_of(inputs: Sequence[Input]) -> list[list[Input]]:
    """The inputs of each micro-batch."""
    parts: list[list[Input]] = [[]]
    for one in inputs:
        if one is None:
            parts.append([])
        else:
            parts[-1].append(one)
    return parts


def run(case: Case) -> OneInputHarness[Item, tuple[int, int]]:
    RUNNING.clear()
    harness = harness_of(case)
    for part in parts_of(case.inputs):
        harness.input.push_all(
            [StampedRecord(one, one.number) if isinstance(one, Item) else MARK.new_watermark(one or 0) for one in part]
        )
        harness.restart()
    return harness


def expected_of(case: Case) -> list[tuple[int, int] | int]:
    """Return the results and watermarks of a function that processes one record after the other."""
    totals: Counter[int] = Counter()
    expected: list[tuple[int, int] | int] = []
    for one in case.inputs:
        if isinstance(one, int):
            expected.append(one)
        elif one is not None and one.succeeds:
            totals[one.key] += one.number
            expected.append((one.number, totals[one.key] if case.keyed else 0))
    return expected


def found_in(harness: OneInputHarness[Item, tuple[int, int]]) -> list[Any]:
    found: list[Any] = []
    for one in harness.output.elements:
        if isinstance(one, StampedRecord):
            assert one.timestamp == one.record[0]
        found.append(one.record if isinstance(one, StampedRecord) else one.value)  # type: ignore[union-attr]
    return found


def intervals(elements: Sequence[Any]) -> list[Any]:
    """The watermarks, and the sorted results between them."""
    found: list[Any] = [[]]
    for one in elements:
        if isinstance(one, int):
            found += [one, []]
        else:
            found[-1].append(one)
    return [sorted(one) if isinstance(one, list) else one for one in found]


@given(cases())
@examples(75)
def test_results_are_those_of_one_record_after_the_other(case: Case) -> None:
    harness = run(case)
    found, expected = found_in(harness), expected_of(case)
    if case.ordered:
        assert found == expected
    assert intervals(found) == intervals(expected)
    running = list(accumulate(RUNNING))
    assert not running or (max(running) <= case.capacity and running[-1] == 0)
    if case.keyed:
        check_keys(case, harness, found)
    harness.close()


def check_keys(case: Case, harness: OneInputHarness[Item, tuple[int, int]], found: Sequence[Any]) -> None:
    """Check order and state of each key: those of its records that did not fail."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for one in case.inputs:
        if isinstance(one, Item) and one.succeeds:
            numbers[one.key].append(one.number)
    emitted = [one[0] for one in found if not isinstance(one, int)]
    assert sorted(harness.keys) == sorted(numbers)
    for key, own in numbers.items():
        assert [number for number in emitted if number in own] == own
        assert harness.visit(lambda ctx: ctx.state_manager.get_state(TOTAL).value(), key) == sum(own)
        assert harness.visit(lambda ctx: list(ctx.state_manager.get_state(SEEN).get()), key) == own
        assert harness.processing_timers(key) == [10**9 + number for number in own]


@given(cases())
@examples(15)
def test_a_repeated_run_emits_the_same_in_the_same_order(case: Case) -> None:
    one, other = run(case), run(case)
    assert one.output.elements == other.output.elements
    assert one.clock.now_ms() == other.clock.now_ms()
    one.close()
    other.close()


@pytest.mark.parametrize("ordered", [True, False])
def test_a_poisoned_record_does_not_hold_up_its_key(ordered: bool) -> None:
    inputs = [Item(0, 0, 5, 0, True), Item(1, 0, 5, 2, False), Item(2, 0, 5, 0, False)]
    harness = run(Case(inputs, ordered, True, False, 2))
    assert harness.output.records == [(1, 1), (2, 3)]
    harness.close()
