"""Mistakes with async functions, their resources, and lookup joins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from dsv2 import Collector, ErrorPolicy
from dsv2 import PartitionedContext as Context
from dsv2.extension.join import LookupCache, lookup_join
from dsv2.functions import AsyncBatchProcessFunction, AsyncOneInputStreamProcessFunction, OneInputStreamProcessFunction
from dsv2.model import AsyncBatchSettings, AsyncResource, AsyncSettings, BatchContext
from tests.typing.given import Given


async def today() -> date:
    return date.today()


class NotAsync(AsyncOneInputStreamProcessFunction[int, bytes]):
    def process_record(self, record: int, output: Collector[bytes], ctx: Context[bytes]) -> None: ...  # E: override


class AsyncInSync(OneInputStreamProcessFunction[int, bytes]):
    async def process_record(self, record: int, output: Collector[bytes], ctx: Context[bytes]) -> None:  # E: override
        output.collect(b"")


class Asks(AsyncOneInputStreamProcessFunction[int, bytes]):
    async_settings = AsyncSettings(capacity="many")  # E: arg-type
    DAY = AsyncResource(today)

    async def process_record(self, record: int, output: Collector[bytes], ctx: Context[bytes]) -> None:
        output.collect(record)  # E: arg-type
        self.DAY.get().isoformat()  # E: attr-defined
        (await self.DAY.get()).decode()  # E: attr-defined


class AsksAll(AsyncBatchProcessFunction[int, bytes]):
    async def process_records(self, records: Sequence[int], output: Collector[bytes], ctx: BatchContext[bytes]) -> None:
        ctx.state_manager.get_state(5)  # E: attr-defined
        print(ctx.timestamp)  # E: attr-defined


def streams(g: Given) -> None:
    g.other_non_keyed.process(Asks())  # E: arg-type
    g.non_keyed.process(Asks()).to_sink(g.int_sink)  # E: arg-type


def settings() -> None:
    AsyncSettings(5)  # E: call-arg
    AsyncSettings(timeout=5)  # E: arg-type
    AsyncSettings(batch_size=5)  # E: call-arg
    AsyncBatchSettings(max_delay=1)  # E: arg-type
    AsyncResource(date.today)  # E: arg-type
    AsyncResource(today, close=date.isoformat)  # E: arg-type
    ErrorPolicy().retry(times=1, jitter="some")  # E: arg-type
    ErrorPolicy().retry(times=1, max_backoff=5)  # E: arg-type
    LookupCache(max_keys=5, ttl=60)  # E: arg-type
    LookupCache(5, timedelta(1))  # E: call-arg


async def day_of(key: str) -> date | None:
    return None


def with_day(number: int, day: date) -> bytes:
    return b""


def joins(g: Given) -> None:
    lookup_join(day_of, g.by_text, with_day, "left")  # E: call-overload
    lookup_join(day_of, g.by_text, with_day, "full")  # E: call-overload
    lookup_join(g.by_day, g.by_text, with_day)  # E: arg-type, misc
    g.other_non_keyed.process(lookup_join(day_of, g.by_text, with_day))  # E: arg-type
