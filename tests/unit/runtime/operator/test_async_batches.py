"""Async functions that process batches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.errors import PlanError, UserFunctionError
from dsv2.functions import AsyncBatchProcessFunction, OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model import AsyncBatchSettings
from dsv2.testing import ManualClock, OneInputHarness, StampedRecord
from tests.async_functions import CLOCKS, MARK, NOTES, advance
from tests.durations import ms


@pytest.fixture(autouse=True)
def no_notes() -> None:
    NOTES.clear()
    CLOCKS[:] = [ManualClock()]


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
