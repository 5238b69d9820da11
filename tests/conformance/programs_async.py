"""Programs with async functions: order, keys and state, watermarks, failures, batches, resources and lookup joins."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

from dsv2 import ErrorPolicy, PartitionedContext, WatermarkHandlingResult
from dsv2.extension.event_time import AsyncOneInputEventTimeStreamProcessFunction, EventTimeManager
from dsv2.extension.join import LookupCache, lookup_join
from dsv2.functions import AsyncBatchProcessFunction, AsyncOneInputStreamProcessFunction, OneInputStreamProcessFunction
from dsv2.model import AsyncBatchSettings, AsyncResource, AsyncSettings
from dsv2.model.context import BatchContext, Collector, NonPartitionedContext
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.watermark import Watermark, WatermarkDeclaration, new_builder
from tests.conformance.functions import NUMBERS, mod3
from tests.conformance.harness import Pipeline, Program, Run
from tests.windows import FlinkGenerator

TOTAL = StateDeclarations.value_state("total", int, default=0)
PASSED = new_builder("passed by an async function").type_long().combine_function_min().build()


async def some_time(number: int) -> None:
    """Wait, so that later numbers complete before earlier ones."""
    await asyncio.sleep((number * 7 % 5) / 1000)


class Slow(AsyncOneInputStreamProcessFunction[int, int]):
    """Emits each number after some time."""

    def __init__(self, *, ordered: bool = True, capacity: int = 3) -> None:
        self.async_settings = AsyncSettings(ordered=ordered, capacity=capacity)

    async def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        await some_time(record)
        output.collect(record)


class AsyncOrder(Program):
    """Ordered functions keep the order of a channel, also one after the other. Unordered ones lose no record."""

    def build(self, p: Pipeline) -> None:
        source = p.source(NUMBERS)
        p.collect(source.process(Slow()).process(Slow(capacity=100)), "ordered")
        p.collect(source.process(Slow(ordered=False)), "unordered")

    def check(self, run: Run) -> None:
        run.expect(*NUMBERS, name="ordered")
        run.expect_channel_order(lambda number: number, name="ordered")
        run.expect_all(*NUMBERS, name="unordered")


class SumOfEven(AsyncOneInputStreamProcessFunction[int, tuple[int, int]]):
    """Adds to the total of a key, with a pause between reading and writing. For odd numbers it fails afterwards."""

    async_settings = AsyncSettings(ordered=False)

    def uses_states(self) -> list[StateDeclaration]:
        return [TOTAL]

    async def process_record(
        self, record: int, output: Collector[tuple[int, int]], ctx: PartitionedContext[Any]
    ) -> None:
        total = ctx.state_manager.get_state(TOTAL)
        before = total.value()
        total.update(-1)
        await some_time(record)
        total.update(before + record)
        ctx.processing_time_manager.register_timer(2**62)
        output.collect((record, total.value()))
        if record % 2:
            raise ValueError(f"odd: {record}")

    def on_processing_timer(
        self, timestamp: int, output: Collector[tuple[int, int]], ctx: PartitionedContext[Any]
    ) -> None:
        output.collect((-1, ctx.state_manager.get_state(TOTAL).value()))

    def end_input(self, ctx: NonPartitionedContext[tuple[int, int]]) -> None:
        ctx.apply_to_all_partitions(
            lambda output, partition: output.collect((-2, partition.state_manager.get_state(TOTAL).value()))
        )


class AsyncState(Program):
    """Records in flight use the state of their keys; what fails is undone, and is a dead letter."""

    def build(self, p: Pipeline) -> None:
        keyed = p.source(NUMBERS).key_by(mod3).process(SumOfEven()).with_uid(p.uid("sum"))
        p.collect(keyed.with_error_policy(ErrorPolicy().dead_letter(ValueError)))
        p.collect(keyed.dead_letters(int).map(lambda letter: (letter.record, letter.key)), "letters")

    def check(self, run: Run) -> None:
        even = [number for number in NUMBERS if number % 2 == 0]
        for key in range(3):
            mine = [pair for pair in run.out() if pair[0] >= 0 and mod3(pair[0]) == key]
            totals = [sum(number for number, _ in mine[: place + 1]) for place in range(len(mine))]
            assert [total for _, total in mine] == totals  # one after the other
        assert sorted(number for number, _ in run.out() if number >= 0) == even
        sums = [sum(number for number in even if mod3(number) == key) for key in range(3)]
        for mark in (-1, -2):  # the timers, and the end of the input
            assert sorted(total for number, total in run.out() if number == mark) == sorted(sums)
        run.expect_all(*((number, mod3(number)) for number in NUMBERS if number % 2), name="letters")


class MarkEach(OneInputStreamProcessFunction[int, int]):
    """Emits each number, and a watermark with it."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [PASSED]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        output.collect(record)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(PASSED.new_watermark(record))


class SlowAndAware(Slow):
    """An async function that receives the watermarks."""

    def __init__(self) -> None:
        super().__init__(ordered=False)
        self.passed = -1

    async def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        assert record > self.passed
        await super().process_record(record, output, ctx)
        assert record > self.passed

    def on_watermark(
        self, watermark: Watermark, output: Collector[int], ctx: NonPartitionedContext[int]
    ) -> WatermarkHandlingResult:
        if watermark.identifier == PASSED.identifier:
            self.passed = int(watermark.value)
        return WatermarkHandlingResult.PEEK


class LastPassed(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Emits each number with the last watermark before it."""

    def __init__(self) -> None:
        self.passed = -1

    def process_record(self, record: int, output: Collector[tuple[int, int]], ctx: PartitionedContext[Any]) -> None:
        output.collect((record, self.passed))

    def on_watermark(
        self, watermark: Watermark, output: Collector[tuple[int, int]], ctx: NonPartitionedContext[Any]
    ) -> WatermarkHandlingResult:
        if watermark.identifier == PASSED.identifier:
            self.passed = int(watermark.value)
        return WatermarkHandlingResult.PEEK


class AsyncWatermarks(Program):
    """Records stay between the watermarks that they were between, whether or not the function receives these."""

    def build(self, p: Pipeline) -> None:
        marked = p.source(NUMBERS).process(MarkEach())
        p.collect(marked.process(Slow(ordered=False)).process(LastPassed()), "unaware")
        p.collect(marked.process(SlowAndAware()).process(LastPassed()), "aware")

    def check(self, run: Run) -> None:
        for name in ("unaware", "aware"):
            assert sorted(number for number, _ in run.out(name)) == list(NUMBERS)
            assert all(passed < number for number, passed in run.out(name))
            if run.parallelism == 1:
                assert run.out(name) == [(number, number - 1) for number in NUMBERS]


class Remind(AsyncOneInputEventTimeStreamProcessFunction[int, tuple[str, int, bool]]):
    """Registers an event timer for each number, after some time, and emits its timestamp and whether it is late."""

    time: EventTimeManager

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.time = manager

    async def process_record(self, record: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        await some_time(record)
        self.time.register_timer(record)
        output.collect(("record", record, ctx.timestamp == record and self.time.current_time() < record))

    def on_event_timer(self, timestamp: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(
            ("timer", timestamp, ctx.timestamp == timestamp and mod3(timestamp) == ctx.state_manager.current_key)
        )


class AsyncEventTime(Program):
    """Event time does not overtake records in flight; their timers fire."""

    def build(self, p: Pipeline) -> None:
        timed = p.source(NUMBERS).process(FlinkGenerator(lambda number: number))
        p.collect(timed.key_by(mod3).process(Remind()))

    def check(self, run: Run) -> None:
        run.expect_all(*((kind, number, True) for kind in ("record", "timer") for number in NUMBERS))


class Score(AsyncBatchProcessFunction[int, tuple[int, bool]]):
    """Emits each number, and whether its batch is as it should be. Fails for 5."""

    async_settings = AsyncBatchSettings(batch_size=2, capacity=2)

    async def process_records(
        self, records: Any, output: Collector[tuple[int, bool]], ctx: BatchContext[tuple[int, bool]]
    ) -> None:
        await some_time(records[0])
        for record in records:
            if record == 5:
                raise ValueError(record)
            output.collect((record, len(records) <= 2 and len(ctx.timestamps) == len(records)))


class AsyncBatches(Program):
    """Batches have the records in order, and a record that fails is skipped alone."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).process(Score()).with_error_policy(ErrorPolicy().skip(ValueError)))

    def check(self, run: Run) -> None:
        run.expect(*((number, True) for number in NUMBERS if number != 5))


class Client:
    """Belongs to a process and its event loop."""

    def __init__(self) -> None:
        self.home = os.getpid(), asyncio.get_running_loop()

    @classmethod
    async def open(cls) -> Client:
        """Take some time."""
        await asyncio.sleep(0.001)
        return cls()

    async def close(self) -> None:
        """Take some time."""
        await asyncio.sleep(0.001)


class Ask(AsyncOneInputStreamProcessFunction[int, tuple[int, bool]]):
    """Emits each number, and whether the client is at home."""

    CLIENT = AsyncResource(Client.open, close=Client.close)

    def __init__(self) -> None:
        self.calls: dict[int, int] = {}

    async def process_record(self, record: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        client = await self.CLIENT.get()
        await some_time(record)
        output.collect((record, client.home == (os.getpid(), asyncio.get_running_loop())))
        self.calls[record] = self.calls.get(record, 0) + 1
        if self.calls[record] < 3:
            raise ConnectionError


class AsyncServices(Program):
    """Calls of a client are repeated."""

    def build(self, p: Pipeline) -> None:
        policy = ErrorPolicy().retry(ConnectionError, times=2, backoff=timedelta(milliseconds=1), jitter=0.5)
        p.collect(p.source(NUMBERS).process(Ask()).with_error_policy(policy).with_uid(p.uid("ask")))

    def check(self, run: Run) -> None:
        run.expect(*((number, True) for number in NUMBERS))
        assert run.progress("ask").counters["errors_retried"] == 2 * len(NUMBERS)


async def word_of(key: int) -> str | None:
    """A lookup."""
    await some_time(key)
    return ("zero", "one", None)[key]


class LookupJoins(Program):
    """Inner and left lookup joins, with and without a cache."""

    def build(self, p: Pipeline) -> None:
        cache = LookupCache(max_keys=10, ttl=timedelta(minutes=1))
        source = p.source(NUMBERS)
        p.collect(source.process(lookup_join(word_of, mod3, lambda number, word: (number, word.upper()))), "inner")
        left = lookup_join(word_of, mod3, lambda number, word: (number, word), "left", cache=cache)
        p.collect(source.process(left).with_uid(p.uid("left")), "left")

    def check(self, run: Run) -> None:
        words = ("zero", "one", None)
        run.expect(*((number, word.upper()) for number in NUMBERS if (word := words[number % 3])), name="inner")
        run.expect(*((number, words[number % 3]) for number in NUMBERS), name="left")
        counters = run.progress("left").counters
        assert counters["lookup_hits"] + counters["lookup_misses"] == len(NUMBERS)


WITH_STATE = (AsyncState(), AsyncEventTime())
PROGRAMS = (AsyncOrder(), AsyncWatermarks(), AsyncBatches(), AsyncServices(), LookupJoins(), *WITH_STATE)
