"""Coroutines of async functions: what they may do, and calls that hang."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dsv2 import CollectSink, ExecutionEnvironment, OutputTag
from dsv2.errors import UserFunctionError
from dsv2.functions import AsyncOneInputStreamProcessFunction
from dsv2.model import AsyncSettings
from dsv2.testing import ManualClock, OneInputHarness, StampedRecord
from tests.async_functions import CLOCKS, NOTES, A, B, C, Waiting, calling
from tests.durations import ms

ASIDE = OutputTag("aside", str)


@pytest.fixture(autouse=True)
def no_notes() -> None:
    NOTES.clear()
    CLOCKS[:] = [ManualClock()]


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
