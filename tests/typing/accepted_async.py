"""The types of async functions, their resources, and lookup joins. Checked by ``test_typing.py``, never run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial
from typing import assert_type

from dsv2 import Collector, ErrorPolicy, PartitionedContext, StateDeclarations
from dsv2.extension.event_time import AsyncOneInputEventTimeStreamProcessFunction
from dsv2.extension.join import LookupCache, lookup_join
from dsv2.functions import AsyncBatchProcessFunction, AsyncOneInputStreamProcessFunction
from dsv2.model import AsyncBatchSettings, AsyncResource, AsyncSettings, BatchContext
from dsv2.streams import ConfiguredGlobalStream, ConfiguredKeyedStream, ConfiguredStream
from dsv2.testing import OneInputHarness
from tests.typing.given import Given


class Session:
    async def find(self, number: int) -> date:
        return date.fromordinal(number)

    async def close(self) -> None: ...


async def connect(host: str) -> Session:
    return Session()


class Ask(AsyncOneInputStreamProcessFunction[int, bytes]):
    async_settings = AsyncSettings(capacity=5, timeout=timedelta(seconds=1), ordered=False, calls_per_second=0.5)
    SESSION = AsyncResource(partial(connect, "host"), close=Session.close)
    TOTAL = StateDeclarations.value_state("total", int, default=0)

    async def process_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
        session = await self.SESSION.get()
        assert_type(session, Session)
        day = await session.find(record)
        total = ctx.state_manager.get_state(self.TOTAL)
        assert_type(total.value(), int)
        output.collect(day.isoformat().encode())


class AskInTime(AsyncOneInputEventTimeStreamProcessFunction[int, bytes]):
    async def process_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None: ...


class AskAll(AsyncBatchProcessFunction[int, bytes]):
    async_settings = AsyncBatchSettings(batch_size=10, max_delay=timedelta(seconds=1))

    async def process_records(self, records: Sequence[int], output: Collector[bytes], ctx: BatchContext[bytes]) -> None:
        assert_type(ctx.timestamps, Sequence[int | None])


async def day_of(key: str) -> date | None:
    return None


def with_day(number: int, day: date) -> bytes:
    return b""


def with_or_without_day(number: int, day: date | None) -> bytes:
    return b""


def streams(g: Given) -> None:
    assert_type(g.non_keyed.process(Ask()), ConfiguredStream[bytes])
    assert_type(g.non_keyed.process(AskAll()), ConfiguredStream[bytes])
    assert_type(g.keyed.process(Ask()), ConfiguredStream[bytes])
    assert_type(g.keyed.process(AskInTime(), g.key_of_bytes), ConfiguredKeyedStream[str, bytes])
    assert_type(g.global_.process(Ask()), ConfiguredGlobalStream[bytes])
    assert_type(OneInputHarness(Ask()), OneInputHarness[int, bytes])
    policy = ErrorPolicy().retry(ConnectionError, times=3, max_backoff=timedelta(seconds=5), jitter=0.5)
    g.non_keyed.process(Ask()).with_error_policy(policy)


def joins(g: Given) -> None:
    cache = LookupCache(max_keys=10, ttl=timedelta(minutes=1))
    inner = lookup_join(day_of, g.by_text, with_day)
    left = lookup_join(day_of, g.by_text, with_or_without_day, "left", cache=cache, settings=AsyncSettings())
    assert_type(g.non_keyed.process(inner), ConfiguredStream[bytes])
    assert_type(g.keyed.process(left), ConfiguredStream[bytes])
