"""Async functions: order, capacity, keys, state, batches, and checks of the plan."""

from __future__ import annotations

import asyncio
import contextvars
from datetime import timedelta
from itertools import accumulate
from typing import Any

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment, StateDeclarations
from dsv2.errors import ConfigurationError, IllegalRedistributionModeError, PlanError, UserFunctionError
from dsv2.functions import AsyncBatchProcessFunction, AsyncOneInputStreamProcessFunction, OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model import AsyncBatchSettings, AsyncSettings
from dsv2.state import RedistributionStrategy, StateTtl
from dsv2.testing import ManualClock, OneInputHarness, StampedRecord
from tests.async_functions import (
    CLOCKS,
    MARK,
    NOTES,
    TOTAL,
    A,
    B,
    C,
    Item,
    Waiting,
    advance,
    calling,
    key_of,
    note,
)
from tests.durations import ms


@pytest.fixture(autouse=True)
def no_notes() -> None:
    NOTES.clear()
    CLOCKS[:] = [ManualClock()]


class TestOrder:
    def test_unordered_results_are_emitted_as_they_complete(self) -> None:
        harness = OneInputHarness(Waiting(ordered=False))
        harness.input.push(A, B, C)
        assert harness.output.records == ["b", "c", "a"]

    @pytest.mark.parametrize("ordered", [True, False])
    def test_records_of_a_key_are_processed_one_after_the_other(self, ordered: bool) -> None:
        harness = OneInputHarness(Waiting(ordered=ordered), key=key_of)
        harness.input.push(A, B, C)
        assert harness.output.records == (["a", "b", "c"] if ordered else ["c", "a", "b"])
        assert harness.clock.now_ms() == 40

    @pytest.mark.parametrize("ordered", [True, False])
    def test_watermarks_are_not_overtaken_and_hold_nothing_back(self, ordered: bool) -> None:
        harness = OneInputHarness(Waiting(ordered=ordered), declarations=[MARK])
        mark = MARK.new_watermark(1)
        harness.input.push_all([StampedRecord(A, 5), mark, StampedRecord(B, 6), StampedRecord(C, None)])
        assert harness.output.elements == [
            StampedRecord("a", 5),
            mark,
            StampedRecord("b", 6),
            StampedRecord("c", None),
        ]
        assert harness.clock.now_ms() == 30

    def test_capacity_is_reached_and_not_exceeded(self) -> None:
        class Counts(AsyncOneInputStreamProcessFunction[int, None]):
            async_settings = AsyncSettings(capacity=3)

            async def process_record(self, record: int, output: Any, ctx: Any) -> None:
                note(1)
                await asyncio.sleep(0.01)
                note(-1)

        harness = OneInputHarness(Counts())
        harness.input.push(*range(10))
        assert max(accumulate(NOTES)) == 3
        assert harness.clock.now_ms() == 40  # 3 + 3 + 3 + 1

    def test_calls_per_second(self) -> None:
        class Slow(AsyncOneInputStreamProcessFunction[int, float]):
            async_settings = AsyncSettings(calls_per_second=100, timeout=ms(15))

            async def process_record(self, record: int, output: Any, ctx: Any) -> None:
                output.collect(asyncio.get_running_loop().time())

        harness = OneInputHarness(Slow())
        harness.input.push(1, 2, 3, 4)  # the timeout does not include the wait
        assert harness.output.records == [0.0, 0.01, 0.02, 0.03]

    def test_batches_of_a_micro_batch_are_in_flight_together(self) -> None:
        clock = ManualClock()
        sink = CollectSink[str]()
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=clock))
        env.from_collection([Item(str(i), 10) for i in range(50)]).with_parallelism(1).process(Waiting()).to_sink(sink)
        env.execute()
        assert sink.results == [str(i) for i in range(50)]
        assert clock.now_ms() == 10


class TestState:
    def test_tasks_of_a_record_have_its_key_and_timestamp(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> None:
            async def part(number: int) -> None:
                await asyncio.sleep(number / 1000)
                output.collect((number, ctx.state_manager.current_key, ctx.timestamp))

            await asyncio.gather(part(2), part(1))

        harness = calling(process, key=lambda record: record)
        harness.input.push_all([StampedRecord(7, 70), StampedRecord(8, 80)])
        assert harness.output.records == [(1, 7, 70), (2, 7, 70), (1, 8, 80), (2, 8, 80)]
        assert harness.output.timestamps == [70, 70, 80, 80]

    def test_handle_in_a_field_follows_the_record(self) -> None:
        class Add(AsyncOneInputStreamProcessFunction[int, Any]):
            total: Any = None

            def uses_states(self) -> Any:
                return [TOTAL]

            async def process_record(self, record: int, output: Any, ctx: Any) -> None:
                if self.total is None:
                    self.total = ctx.state_manager.get_state(TOTAL)
                self.total.update(self.total.value() + record)
                await asyncio.sleep(0.001 * record)
                output.collect((record, self.total.value()))

        harness = OneInputHarness(Add(), key=lambda number: number % 2)
        harness.input.push(1, 2, 3, 4)
        assert harness.output.records == [(1, 1), (2, 2), (3, 4), (4, 6)]

    def test_timers_fire_when_nothing_is_in_flight(self) -> None:
        class Timers(AsyncOneInputStreamProcessFunction[int, Any]):
            in_flight = 0

            async def process_record(self, record: int, output: Any, ctx: Any) -> None:
                ctx.processing_time_manager.register_timer(record)
                self.in_flight += 1
                await asyncio.sleep(0.001 * record)
                self.in_flight -= 1

            def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
                output.collect((timestamp, ctx.state_manager.current_key, self.in_flight))

        harness = OneInputHarness(Timers(), key=lambda number: number)
        harness.input.push(3, 5)
        harness.advance_clock(ms(3))
        assert harness.output.records == [(3, 3, 0), (5, 5, 0)]

    def test_state_with_a_time_to_live(self) -> None:
        seen = StateDeclarations.value_state("seen", int, default=0, ttl=StateTtl(ms(100)))

        class Count(AsyncOneInputStreamProcessFunction[str, Any]):
            def uses_states(self) -> Any:
                return [seen]

            async def process_record(self, record: str, output: Any, ctx: Any) -> None:
                state = ctx.state_manager.get_state(seen)
                state.update(state.value() + 1)
                await asyncio.sleep(0.01)
                output.collect((record, state.value()))
                if state.value() == 3:
                    raise ValueError

        policy = ErrorPolicy().skip(ValueError)
        harness = OneInputHarness(Count(), key=lambda record: record, error_policy=policy)
        harness.input.push("a", "b", "a", "a", "a")
        assert harness.output.records == [("a", 1), ("b", 1), ("a", 2)]
        harness.advance_clock(ms(200))
        harness.input.push("a")
        assert harness.output.records[-1] == ("a", 1)


class TestChecks:
    def test_process_record_must_be_a_coroutine_function(self) -> None:
        class Plain(AsyncOneInputStreamProcessFunction[int, int]):
            def process_record(self, record: Any, output: Any, ctx: Any) -> Any:
                pass

        with pytest.raises(PlanError, match=r"process_record must be a coroutine function. Write it with async def"):
            OneInputHarness(Plain())

    def test_coroutine_in_another_function_is_refused_with_advice(self) -> None:
        class Wrong(OneInputStreamProcessFunction[int, int]):
            async def process_record(self, record: Any, output: Any, ctx: Any) -> Any:  # type: ignore[override]
                pass

        with pytest.raises(PlanError, match="use an AsyncOneInputStreamProcessFunction"):
            OneInputHarness(Wrong())

    def test_states_of_the_subtask_are_refused(self) -> None:
        shared = StateDeclarations.list_state_builder("shared", int)
        declaration = shared.redistribute_by(RedistributionStrategy.SPLIT).build()

        class Shares(Waiting):
            def uses_states(self) -> Any:
                return [declaration]

        with pytest.raises(IllegalRedistributionModeError, match="records in flight would overwrite"):
            OneInputHarness(Shares())

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"capacity": 0}, "capacity must be a whole number of at least 1"),
            ({"timeout": timedelta(0)}, "timeout must be at least 1 ms"),
            ({"calls_per_second": 0}, "calls_per_second must be a number above 0"),
            ({"batch_size": 0}, "batch_size must be"),
            ({"max_delay": 5}, "max_delay must be a datetime.timedelta"),
        ],
    )
    def test_invalid_settings(self, settings: Any, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            AsyncBatchSettings(**settings)

    def test_context_of_the_caller_is_not_changed(self) -> None:
        before = contextvars.copy_context()
        OneInputHarness(Waiting()).input.push(A)
        assert dict(contextvars.copy_context()) == dict(before)


# --- Batches ----------------------------------------------------------------------------------------------------------


def in_batches(**settings: Any) -> Any:
    class Batches(AsyncBatchProcessFunction[Any, Any]):
        async_settings = AsyncBatchSettings(**settings)

        async def process_records(self, records: Any, output: Any, ctx: Any) -> None:
            await asyncio.sleep(0.01)
            for record in records:
                output.collect(10 // record)
            output.collect(list(records))

    return Batches()


class TestBatches:
    def test_full_batches_are_in_flight_together(self) -> None:
        harness = OneInputHarness(in_batches(batch_size=2, capacity=2))
        harness.input.push(1, 2, 5, 1, 2)
        assert [one for one in harness.output.records if isinstance(one, list)] == [[1, 2], [5, 1], [2]]
        assert harness.clock.now_ms() == 20

    def test_batch_ends_at_a_watermark(self) -> None:
        harness = OneInputHarness(in_batches(batch_size=5), declarations=[MARK])
        mark = MARK.new_watermark(1)
        harness.input.push_all([StampedRecord(1), StampedRecord(2), mark, StampedRecord(5)])
        assert harness.output.elements[2:4] == [StampedRecord([1, 2]), mark]

    def test_only_records_that_fail_are_skipped(self) -> None:
        policy = ErrorPolicy().dead_letter(ZeroDivisionError)
        harness = OneInputHarness(in_batches(batch_size=3), error_policy=policy)
        harness.input.push(1, 0, 2, 5)
        assert harness.output.records == [10, [1], 5, [2], 2, [5]]
        assert [letter.record for letter in harness.dead_letters.records] == [0]
        assert harness.progress.counters == {"errors_dead_lettered": 1}

    def test_batch_that_takes_too_long_is_not_tried_again(self) -> None:
        policy = ErrorPolicy().dead_letter(TimeoutError)
        harness = OneInputHarness(in_batches(timeout=ms(5)), error_policy=policy)
        harness.input.push(1, 2)
        assert [letter.record for letter in harness.dead_letters.records] == [1, 2]
        assert harness.clock.now_ms() == 5

    def test_batch_that_takes_too_long_can_have_a_result(self) -> None:
        class Late(AsyncBatchProcessFunction[int, str]):
            async_settings = AsyncBatchSettings(timeout=ms(5))

            async def process_records(self, records: Any, output: Any, ctx: Any) -> None:
                await asyncio.sleep(1)

            def on_timeout(self, records: Any, output: Any, ctx: Any) -> None:
                for record, timestamp in zip(records, ctx.timestamps, strict=True):
                    output.collect_and_overwrite_timestamp(f"no answer for {record}", timestamp)

        harness = OneInputHarness(Late())
        harness.input.push_all([StampedRecord(1, 10), StampedRecord(2, 20)])
        assert harness.output.stamped_records == [
            StampedRecord("no answer for 1", 10),
            StampedRecord("no answer for 2", 20),
        ]

    def test_failing_batch_fails_the_job(self) -> None:
        harness = OneInputHarness(in_batches())
        with pytest.raises(UserFunctionError) as caught:
            harness.input.push(1, 0)
        assert (caught.value.callback, caught.value.record) == ("process_records", "[1, 0]")

    def test_timestamps(self) -> None:
        class Stamped(AsyncBatchProcessFunction[int, int]):
            async def process_records(self, records: Any, output: Any, ctx: Any) -> None:
                await asyncio.sleep(0.01)
                for record, timestamp in zip(records, ctx.timestamps, strict=True):
                    output.collect_and_overwrite_timestamp(record, timestamp + 1)
                output.collect(0)

        harness = OneInputHarness(Stamped())
        harness.input.push_all([StampedRecord(1, 10), StampedRecord(2, 20)])
        assert harness.output.timestamps == [11, 21, None]

    def test_max_delay(self) -> None:
        class Upstream(OneInputStreamProcessFunction[int, int]):
            def process_record(self, record: int, output: Any, ctx: Any) -> None:
                advance(ms(10))
                output.collect(record)

        sink = CollectSink[Any]()
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=CLOCKS[0]))
        slow = env.from_collection([1, 2, 5, 1, 2]).with_parallelism(1).process(Upstream()).with_parallelism(1)
        slow.process(in_batches(max_delay=ms(15))).with_parallelism(1).to_sink(sink)
        env.execute()
        assert [one for one in sink.results if isinstance(one, list)] == [[1, 2], [5, 1], [2]]

    def test_keyed_streams_are_refused(self) -> None:
        with pytest.raises(PlanError, match="processes records of several keys at once"):
            OneInputHarness(in_batches(), key=lambda record: record)
