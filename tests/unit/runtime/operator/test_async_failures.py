"""Failures of async functions: what is undone, retries, timeouts, cancelled calls, and coroutines that hang."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment, OutputTag, StateDeclarations
from dsv2.errors import UserFunctionError
from dsv2.functions import AsyncOneInputStreamProcessFunction
from dsv2.model import AsyncSettings
from dsv2.state import StateTtl
from dsv2.testing import ManualClock, OneInputHarness, StampedRecord
from tests.async_functions import CLOCKS, NOTES, TOTAL, A, B, C, Waiting, add, calling, note
from tests.durations import ms


@pytest.fixture(autouse=True)
def no_notes() -> None:
    NOTES.clear()
    CLOCKS[:] = [ManualClock()]


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
    harness = OneInputHarness(FailsTheSecondTime(), key=lambda record: record, error_policy=policy, checks=False)
    harness.input.push("a")
    harness.advance_clock(ms(200))
    harness.input.push("a")
    harness.snapshot()
    assert harness.keys == []


class RefusedError(Exception):
    pass


class Late(AsyncOneInputStreamProcessFunction[int, str]):
    """Takes too long for odd numbers. Adds up the even numbers of a key, or counts what took too long."""

    async_settings = AsyncSettings(timeout=ms(100))

    def uses_states(self) -> Any:
        return [TOTAL]

    async def process_record(self, record: int, output: Any, ctx: Any) -> None:
        total = add_to_total(record, ctx)
        output.collect(f"{record} in time, total {total}")
        await asyncio.sleep(record % 2)

    def on_timeout(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(f"{record} took too long, total {add_to_total(1, ctx)}")


def add_to_total(number: int, ctx: Any) -> int:
    state = ctx.state_manager.get_state(TOTAL)
    state.update(state.value() + number)
    return int(state.value())


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
        harness = OneInputHarness(Flaky(), error_policy=policy, checks=False)
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

    def test_timeout_can_have_a_result(self) -> None:
        """The changes of the call are undone before. Those of ``on_timeout`` count."""
        harness = OneInputHarness(Late(), key=lambda record: record % 2, checks=False)
        harness.input.push_all([StampedRecord(1, 10), StampedRecord(3, 20), StampedRecord(2, 30)])
        assert harness.output.stamped_records == [
            StampedRecord("1 took too long, total 1", 10),
            StampedRecord("3 took too long, total 2", 20),
            StampedRecord("2 in time, total 2", 30),
        ]
        harness.restart()
        harness.input.push(1)
        assert harness.output.records[-1] == "1 took too long, total 3"

    def test_error_of_on_timeout_names_it(self) -> None:
        class Refusing(Late):
            def on_timeout(self, record: int, output: Any, ctx: Any) -> None:
                output.collect("lost")
                raise RefusedError(f"{record} took too long")

        with pytest.raises(UserFunctionError, match="3 took too long") as caught:
            OneInputHarness(Refusing(), key=lambda record: record % 2).input.push(3)
        assert (caught.value.callback, caught.value.cause_type) == ("on_timeout", "RefusedError")
        harness = OneInputHarness(
            Refusing(), key=lambda record: record % 2, error_policy=ErrorPolicy().dead_letter(RefusedError)
        )
        harness.input.push(3, 2)
        assert [letter.record for letter in harness.dead_letters.records] == [3]
        assert harness.output.records == ["2 in time, total 2"]

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


# --- Coroutines -------------------------------------------------------------------------------------------------------


ASIDE = OutputTag("aside", str)


class TestWhatCoroutinesMayDo:
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
