"""Async functions: order, capacity, keys, state, failures, timeouts, and what coroutines may do when."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import accumulate
from typing import Any, NamedTuple

import pytest

from dsv2 import (
    AsyncBatchSettings,
    AsyncSettings,
    CollectSink,
    ConfigurationError,
    ErrorPolicy,
    ExecutionEnvironment,
    OutputTag,
    PlanError,
    StateDeclarations,
    UserFunctionError,
    new_builder,
)
from dsv2.errors import IllegalRedistributionModeError
from dsv2.extension.event_time import AsyncOneInputEventTimeStreamProcessFunction
from dsv2.functions import (
    AsyncBatchProcessFunction,
    AsyncOneInputStreamProcessFunction,
    OneInputStreamProcessFunction,
)
from dsv2.local import LocalRuntime
from dsv2.state import RedistributionStrategy, StateTtl
from dsv2.testing import ManualClock, OneInputHarness, StampedRecord
from dsv2.watermark import WatermarkHandlingResult
from tests.durations import ms

NOTES: list[Any] = []
CLOCKS: list[ManualClock] = []
TOTAL = StateDeclarations.value_state("total", int, default=0)
ASIDE = OutputTag("aside", str)
MARK = new_builder("mark").type_long().combine_function_max().build()


@pytest.fixture(autouse=True)
def no_notes() -> None:
    NOTES.clear()
    CLOCKS[:] = [ManualClock()]


def advance(duration: timedelta) -> None:
    """Advance the clock of the test."""
    CLOCKS[0].advance(duration)


def note(value: Any) -> None:
    """Note something in this process: harnesses copy functions with their variables."""
    NOTES.append(value)


class Item(NamedTuple):
    """A record that takes ``wait`` ms."""

    name: str
    wait: int
    key: str = ""


def key_of(item: Item) -> str:
    return item.key


class Waiting(AsyncOneInputStreamProcessFunction[Item, str]):
    """Emits the name of a record after its time."""

    def __init__(self, **settings: Any) -> None:
        self.async_settings = AsyncSettings(**settings)

    async def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        await asyncio.sleep(record.wait / 1000)
        output.collect(record.name)


class Calling(AsyncOneInputStreamProcessFunction[Any, Any]):
    """Calls ``process``."""

    def __init__(self, process: Callable[[Any, Any, Any], Awaitable[None]], **settings: Any) -> None:
        self.async_settings = AsyncSettings(**settings)
        self.process = process

    def uses_states(self) -> Any:
        return [TOTAL]

    async def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        await self.process(record, output, ctx)


def in_batches(**settings: Any) -> Any:
    class Batches(AsyncBatchProcessFunction[Any, Any]):
        async_settings = AsyncBatchSettings(**settings)

        async def process_records(self, records: Any, output: Any, ctx: Any) -> None:
            await asyncio.sleep(0.01)
            for record in records:
                output.collect(10 // record)
            output.collect(list(records))

    return Batches()


def calling(process: Callable[[Any, Any, Any], Awaitable[None]], **options: Any) -> OneInputHarness[Any, Any]:
    settings = {name: options.pop(name) for name in ("capacity", "timeout", "ordered") if name in options}
    options.setdefault("key", lambda record: 0)
    return OneInputHarness(Calling(process, **settings), **options)


A, B, C = Item("a", 30, "k"), Item("b", 10, "k"), Item("c", 20, "l")


class TestOrder:
    def test_ordered_results_have_the_order_of_the_input(self) -> None:
        harness = OneInputHarness(Waiting())
        harness.input.push(A, B, C)
        assert harness.output.records == ["a", "b", "c"]
        assert harness.clock.now_ms() == 30  # all at the same time

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


async def add(record: Any, output: Any, ctx: Any) -> None:
    """Adds to the total of the key, with a pause in the middle."""
    total = ctx.state_manager.get_state(TOTAL)
    before = total.value()
    total.update(-1)
    await asyncio.sleep(0.01)
    total.update(before + record)
    output.collect((ctx.state_manager.current_key, total.value()))


class TestState:
    def test_each_record_sees_the_state_of_its_key(self) -> None:
        harness = calling(add, key=lambda number: number % 3, ordered=False)
        harness.input.push(*range(9))
        assert sorted(harness.output.records) == [
            (0, 0),
            (0, 3),
            (0, 9),
            (1, 1),
            (1, 5),
            (1, 12),
            (2, 2),
            (2, 7),
            (2, 15),
        ]
        assert harness.clock.now_ms() == 30
        assert harness.visit(lambda ctx: ctx.state_manager.get_state(TOTAL).value(), 2) == 15

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

    def test_event_time(self) -> None:
        class Timers(AsyncOneInputEventTimeStreamProcessFunction[int, Any]):
            def init_event_time_process_function(self, manager: Any) -> None:
                self.time = manager

            async def process_record(self, record: int, output: Any, ctx: Any) -> None:
                await asyncio.sleep(0.01)
                self.time.register_timer(record)
                output.collect(("record", record, self.time.current_time()))

            def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
                output.collect(("timer", timestamp, ctx.state_manager.current_key))

        harness = OneInputHarness(Timers(), key=lambda number: number)
        time = harness.input
        time.push_event_time(0)
        time.push(4, 7)
        time.push_event_time(5)
        time.end()
        assert harness.output.records == [
            ("record", 4, 0),
            ("record", 7, 0),
            ("timer", 4, 4),
            ("timer", 7, 7),
        ]
        assert harness.output.event_times == [0, 5]

    def test_function_that_reacts_to_watermarks_sees_the_state_before_them(self) -> None:
        class Reacts(Calling):
            def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
                def show(output: Any, partition: Any) -> None:
                    output.collect(partition.state_manager.get_state(TOTAL).value())

                ctx.apply_to_all_partitions(show)
                return WatermarkHandlingResult.PEEK

            def end_input(self, ctx: Any) -> None:
                ctx.apply_to_all_partitions(lambda output, partition: output.collect("end"))

        harness = OneInputHarness(Reacts(add), key=lambda number: 0, declarations=[MARK])
        harness.input.push_all([StampedRecord(1), MARK.new_watermark(1), StampedRecord(2)])
        harness.end()
        assert harness.output.records == [(0, 1), 1, (0, 3), "end"]

    def test_watermark_of_a_record_stays_between_its_records(self) -> None:
        class Emits(AsyncOneInputStreamProcessFunction[int, int]):
            def declare_watermarks(self) -> Any:
                return [MARK]

            async def process_record(self, record: int, output: Any, ctx: Any) -> None:
                output.collect(record)
                ctx.non_partitioned_context.watermark_manager.emit_watermark(MARK.new_watermark(record))
                await asyncio.sleep((5 - record) / 1000)
                output.collect(-record)

        harness = OneInputHarness(Emits())
        harness.input.push(1, 2)
        one, two = MARK.new_watermark(1), MARK.new_watermark(2)
        records = [StampedRecord(number) for number in (1, -1, 2, -2)]
        assert harness.output.elements == [records[0], one, records[1], records[2], two, records[3]]

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


class FailsTheSecondTime(AsyncOneInputStreamProcessFunction[str, None]):
    """Keeps a value for 100 ms."""

    dsv2_remember_keys = False
    SEEN = StateDeclarations.value_state("seen", int, ttl=StateTtl(ms(100)))

    def uses_states(self) -> Any:
        return [self.SEEN]

    async def process_record(self, record: str, output: Any, ctx: Any) -> None:
        ctx.state_manager.get_state(self.SEEN).update(1)
        note(record)
        if len(NOTES) == 2:
            raise ValueError


def test_failure_does_not_restore_what_has_expired_meanwhile() -> None:
    policy = ErrorPolicy().skip(ValueError)
    harness = OneInputHarness(FailsTheSecondTime(), key=lambda record: record, error_policy=policy, fast=True)
    harness.input.push("a")
    harness.advance_clock(ms(200))
    harness.input.push("a")
    harness.snapshot()
    assert harness.keys == []


class RefusedError(Exception):
    pass


async def add_or_refuse(record: int, output: Any, ctx: Any) -> None:
    """Fails for odd numbers, after it has emitted and changed the state."""
    total = ctx.state_manager.get_state(TOTAL)
    total.update(total.value() + record)
    ctx.processing_time_manager.register_timer(1_000_000 + record)
    output.collect(total.value())
    await asyncio.sleep((10 - record) / 1000)
    if record % 2:
        raise RefusedError(f"odd: {record}")


class TestFailures:
    def test_skipped_records_leave_nothing_behind(self) -> None:
        class Timers(Calling):
            def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
                pass

        policy = ErrorPolicy().skip(RefusedError)
        harness = OneInputHarness(Timers(add_or_refuse), key=lambda number: number // 4, error_policy=policy)
        harness.input.push(*range(10), 13)
        assert harness.output.records == [0, 2, 4, 10, 8]
        assert harness.keys == [0, 1, 2]  # not the key of 13
        assert harness.processing_timers(0) == [1_000_000, 1_000_002]
        assert harness.progress.counters == {"errors_skipped": 6}

    def test_dead_letters_stay_in_their_place(self) -> None:
        policy = ErrorPolicy().dead_letter(RefusedError)
        harness = calling(add_or_refuse, error_policy=policy)
        harness.input.push(2, 3)
        (letter,) = harness.dead_letters.records
        assert (letter.record, letter.key, letter.callback) == (3, 0, "process_record")
        assert harness.output.records == [2]

    def test_failure_names_the_record_and_its_key(self) -> None:
        harness = calling(add_or_refuse, key=lambda number: f"key {number}")
        with pytest.raises(UserFunctionError, match="RefusedError: odd: 3") as caught:
            harness.input.push(2, 3)
        assert (caught.value.callback, caught.value.record, caught.value.key) == ("process_record", "3", "'key 3'")
        assert "add_or_refuse" in caught.value.traceback_text

    def test_key_selector_that_fails(self) -> None:
        harness = calling(add, key=lambda number: 1 // number, error_policy=ErrorPolicy().dead_letter())
        harness.input.push(0, 1)
        (letter,) = harness.dead_letters.records
        assert (letter.record, letter.key, letter.callback) == (0, None, "key selector")
        assert harness.output.records == [(1, 1)]

    @pytest.mark.parametrize("key", [None, [1]])
    def test_invalid_keys_fail(self, key: Any) -> None:
        with pytest.raises(UserFunctionError) as caught:
            calling(add, key=lambda number: key).input.push(1)
        assert caught.value.callback == "key selector"

    def test_retries_wait_without_holding_up_others(self) -> None:
        class Flaky(AsyncOneInputStreamProcessFunction[int, Any]):
            async_settings = AsyncSettings(ordered=False)

            def __init__(self) -> None:
                self.failed = 0

            async def process_record(self, record: int, output: Any, ctx: Any) -> None:
                output.collect((record, asyncio.get_running_loop().time()))
                if record == 0 and self.failed < 2:
                    self.failed += 1
                    raise ConnectionError

        policy = ErrorPolicy().retry(ConnectionError, times=2, backoff=ms(100))
        harness = OneInputHarness(Flaky(), error_policy=policy, fast=True)
        harness.input.push(0, 1)
        assert harness.output.records == [(1, 0.0), (0, 0.3)]
        assert harness.progress.counters == {"errors_retried": 2}

    def test_timeout_is_the_total_of_all_attempts(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> None:
            output.collect(record)
            await asyncio.sleep(0.04)
            raise ConnectionError

        policy = ErrorPolicy().retry(ConnectionError, times=30).dead_letter(TimeoutError)
        harness = calling(process, timeout=ms(100), error_policy=policy)
        harness.input.push(1)
        (letter,) = harness.dead_letters.records
        assert letter.error_message == "not completed within 100 ms, the timeout of async_settings"
        assert "asyncio.sleep(0.04)" in letter.traceback
        assert (harness.clock.now_ms(), harness.output.records) == (100, [])
        assert harness.progress.counters == {"errors_retried": 2, "errors_dead_lettered": 1}

    def test_timeouts_of_the_function_itself_can_be_retried(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> None:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(1)

        harness = calling(process, error_policy=ErrorPolicy().retry(TimeoutError, times=2).skip(TimeoutError))
        harness.input.push(1)
        assert harness.progress.counters == {"errors_retried": 2, "errors_skipped": 1}

    def test_limit(self) -> None:
        harness = calling(add_or_refuse, error_policy=ErrorPolicy().skip(RefusedError).limit(total=1))
        with pytest.raises(UserFunctionError, match="this is number 2"):
            harness.input.push(1, 3)

    def test_cancelled_subtask_is_a_failure_of_the_record(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> None:
            inner = asyncio.create_task(asyncio.sleep(1))
            await asyncio.sleep(0)
            inner.cancel()
            await inner

        with pytest.raises(UserFunctionError, match="CancelledError"):
            calling(process).input.push(1)

    def test_record_that_cancels_itself_fails(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        with pytest.raises(UserFunctionError, match="CancelledError"):
            calling(process).input.push(1)

    def test_others_are_cancelled_when_the_job_fails(self) -> None:
        class Fails(AsyncOneInputStreamProcessFunction[int, int]):
            async def process_record(self, record: int, output: Any, ctx: Any) -> None:
                if record == 0:
                    await asyncio.sleep(0.01)
                    raise ValueError
                try:
                    await asyncio.sleep(100)
                finally:
                    note(record)

        harness = OneInputHarness(Fails())
        with pytest.raises(UserFunctionError, match="ValueError"):
            harness.input.push(1, 0, 2)
        assert (NOTES, harness.clock.now_ms()) == ([1, 2], 10)

    def test_returned_value_is_refused(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> Any:
            return record

        class Returns(AsyncOneInputStreamProcessFunction[int, int]):
            async def process_record(self, record: int, output: Any, ctx: Any) -> Any:
                return await process(record, output, ctx)

        with pytest.raises(UserFunctionError, match="returned 1, which is discarded"):
            OneInputHarness(Returns()).input.push(1)


class TestWhatCoroutinesMayDo:
    def test_task_that_outlives_its_record_cannot_emit(self) -> None:
        class Strays(AsyncOneInputStreamProcessFunction[int, int]):
            async def process_record(self, record: int, output: Any, ctx: Any) -> None:
                async def later() -> None:
                    await asyncio.sleep(0.01)
                    output.collect(record)

                if record == 1:
                    task = asyncio.create_task(later())
                    task.add_done_callback(lambda task: note(task.exception()))
                else:
                    await asyncio.sleep(0.1)

        harness = OneInputHarness(Strays())
        harness.input.push(1, 2)
        assert "The call for this record has ended" in str(NOTES)
        assert harness.output.records == []

    def test_side_output_has_the_timestamp_of_its_record(self) -> None:
        class Notes(AsyncOneInputStreamProcessFunction[int, int]):
            async_settings = AsyncSettings(ordered=False)

            def declare_outputs(self) -> Any:
                return [ASIDE]

            async def process_record(self, record: int, output: Any, ctx: Any) -> None:
                await asyncio.sleep(record / 1000)
                ctx.output(ASIDE, f"{record}")
                output.collect_and_overwrite_timestamp(record, 0)

        harness = OneInputHarness(Notes())
        harness.input.push_all([StampedRecord(2, 20), StampedRecord(1, 10)])
        assert harness.side_output(ASIDE).elements == [StampedRecord("1", 10), StampedRecord("2", 20)]
        assert harness.output.elements == [StampedRecord(1, 0), StampedRecord(2, 0)]

    def test_kept_key_is_that_of_the_record(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> None:
            await asyncio.sleep(0.01)
            output.collect(record + (record == 3))

        harness = calling(process, key=lambda record: record, output_key=lambda record: record)
        harness.input.push(1, 2)
        assert harness.output.records == [1, 2]
        with pytest.raises(UserFunctionError, match="record 4 has the key 4, but the current key is 3"):
            harness.input.push(3)

    def test_other_threads_cannot_emit(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> None:
            await asyncio.to_thread(output.collect, record)

        with pytest.raises(UserFunctionError, match="Return the result of asyncio"):
            calling(process).input.push(1)

    def test_blocking_code_runs_in_a_thread(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> None:
            output.collect(await asyncio.to_thread(pow, record, 2))

        harness = calling(process, timeout=ms(1))  # while the thread runs, time stands still
        harness.input.push(3)
        assert harness.output.records == [9]
        assert harness.clock.now_ms() == 0

    def test_other_keys_cannot_be_visited(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> None:
            ctx.non_partitioned_context.apply_to_all_partitions(lambda output, partition: None)

        with pytest.raises(UserFunctionError, match="not available while records are in flight"):
            calling(process).input.push(1)

    def test_job_may_run_within_a_loop(self) -> None:
        async def main() -> list[str]:
            sink = CollectSink[str]()
            env = ExecutionEnvironment.get_instance(runtime="local")
            env.from_collection([A, B, C]).process(Waiting()).to_sink(sink)
            env.execute()
            return sorted(sink.results)

        assert asyncio.run(main()) == ["a", "b", "c"]

    def test_hanging_call_is_interrupted(self) -> None:
        class Hangs(AsyncOneInputStreamProcessFunction[str, str]):
            async def process_record(self, record: str, output: Any, ctx: Any) -> None:
                await asyncio.Event().wait()

        env = ExecutionEnvironment.get_instance(runtime="local")
        env.set_callback_timeout(ms(100))
        env.from_collection(["hangs"]).process(Hangs()).to_sink(CollectSink[str]())
        with pytest.raises(UserFunctionError, match="did not return within 100 ms") as caught:
            env.execute()
        assert caught.value.record == "'hangs'"

    def test_blocking_call_is_interrupted(self) -> None:
        class Blocks(AsyncOneInputStreamProcessFunction[str, str]):
            async def process_record(self, record: str, output: Any, ctx: Any) -> None:
                await asyncio.sleep(0.001)
                threading.Event().wait()

        env = ExecutionEnvironment.get_instance(runtime="local")
        env.set_callback_timeout(ms(100))
        env.from_collection(["blocks"]).process(Blocks()).to_sink(CollectSink[str]())
        with pytest.raises(UserFunctionError, match="did not return within 100 ms") as caught:
            env.execute()
        assert caught.value.record == "'blocks'"
        assert "threading.Event().wait()" in caught.value.traceback_text

    def test_job_within_a_loop_is_interrupted(self) -> None:
        class Hangs(AsyncOneInputStreamProcessFunction[str, str]):
            async def process_record(self, record: str, output: Any, ctx: Any) -> None:
                await asyncio.Event().wait()

        async def main() -> None:
            env = ExecutionEnvironment.get_instance(runtime="local")
            env.set_callback_timeout(ms(100))
            env.from_collection(["hangs"]).process(Hangs()).to_sink(CollectSink[str]())
            env.execute()

        with pytest.raises(UserFunctionError, match="did not return within 100 ms"):
            asyncio.run(main())

    def test_coroutine_that_cannot_continue_is_named(self) -> None:
        async def process(record: int, output: Any, ctx: Any) -> None:
            if record:
                await asyncio.Event().wait()

        with pytest.raises(UserFunctionError, match="no record can be completed") as caught:
            calling(process).input.push(0, 1)
        assert (caught.value.callback, caught.value.record, caught.value.key) == ("process_record", "1", "0")


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

    def test_other_callbacks_are_no_coroutines(self) -> None:
        class Wrong(Waiting):
            async def end_input(self, ctx: Any) -> Any:  # type: ignore[override]
                pass

        with pytest.raises(PlanError, match="end_input is a coroutine"):
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

    def test_settings_of_the_wrong_kind(self) -> None:
        class Wrong(AsyncBatchProcessFunction[int, int]):
            async_settings = AsyncSettings()

            async def process_records(self, records: Any, output: Any, ctx: Any) -> None:
                pass

        with pytest.raises(ConfigurationError, match=r"must be AsyncBatchSettings\(...\)"):
            OneInputHarness(Wrong())

    def test_context_of_the_caller_is_not_changed(self) -> None:
        before = contextvars.copy_context()
        OneInputHarness(Waiting()).input.push(A)
        assert dict(contextvars.copy_context()) == dict(before)
