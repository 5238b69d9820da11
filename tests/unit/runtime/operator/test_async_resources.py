"""Async resources: opened once for each event loop, closed, opened again, and their failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.errors import ConfigurationError, UserFunctionError
from dsv2.functions import AsyncOneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model import AsyncResource
from dsv2.testing import OneInputHarness
from tests.durations import ms

pytestmark = pytest.mark.usefixtures("no_other_harnesses")

EVENTS: list[str] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    EVENTS.clear()


class Session:
    """A client that belongs to the event loop that it was opened in."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls) -> Session:
        await asyncio.sleep(0.01)
        EVENTS.append("open")
        return cls()

    async def get(self, record: int) -> int:
        await asyncio.sleep(0.01)
        assert asyncio.get_running_loop() is self.loop
        return record * 2

    async def close(self) -> None:
        await asyncio.sleep(0.01)
        assert asyncio.get_running_loop() is self.loop
        EVENTS.append("close")


async def fail_once() -> Session:
    EVENTS.append("try")
    await asyncio.sleep(0.01)
    if len(EVENTS) == 1:
        raise ConnectionError("not there")
    return Session()


async def never() -> Session:
    await asyncio.Event().wait()
    raise AssertionError


class Asks(AsyncOneInputStreamProcessFunction[int, int]):
    """Uses a session of its own, which many records ask for at the same time."""

    def __init__(self, open: Any = Session.open) -> None:
        self.session = AsyncResource(open, close=Session.close)

    async def process_record(self, record: int, output: Any, ctx: Any) -> None:
        session = await self.session.get()
        output.collect(await session.get(record))


@pytest.mark.parametrize("batches", [(), (3,)])
def test_job_opens_it_once(batches: tuple[int, ...]) -> None:
    sink = CollectSink[int]()
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=batches))
    env.set_parallelism(2)
    env.from_collection(range(12)).process(Asks()).to_sink(sink)
    env.execute()
    assert sorted(sink.results) == list(range(0, 24, 2))
    assert EVENTS == ["open", "close"]


def test_operators_share_it() -> None:
    asks = Asks()
    sink = CollectSink[int]()
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection([1, 2]).process(asks).process(asks).to_sink(sink)
    env.execute()
    assert sorted(sink.results) == [4, 8]
    assert EVENTS == ["open", "close"]


def test_it_is_closed_when_the_job_fails_and_opened_by_the_next() -> None:
    asks = Asks()
    for _ in range(2):
        env = ExecutionEnvironment.get_instance(runtime="local")
        numbers: list[Any] = [1, "two"]
        env.from_collection(numbers).process(asks).map(lambda number: number + 1).to_sink(CollectSink[Any]())
        with pytest.raises(UserFunctionError):
            env.execute()
    assert EVENTS == ["open", "close"] * 2


def test_it_is_closed_within_a_loop() -> None:
    async def main() -> None:
        test_operators_share_it()

    asyncio.run(main())


def test_harness_closes_it() -> None:
    harness = OneInputHarness(Asks())
    harness.input.push(1, 2)
    harness.restart()
    harness.input.push(3)
    assert harness.output.records == [2, 4, 6]
    assert EVENTS == ["open"]
    harness.end()
    assert EVENTS == ["open", "close"]


def test_record_that_is_cancelled_does_not_cancel_opening() -> None:
    class Impatient(Asks):
        async def process_record(self, record: int, output: Any, ctx: Any) -> None:
            async with asyncio.timeout(0.005 * record):
                await super().process_record(record, output, ctx)

    harness = OneInputHarness(Impatient(), error_policy=ErrorPolicy().skip(TimeoutError))
    harness.input.push(1, 100)
    assert harness.output.records == [200]
    assert EVENTS == ["open"]
    harness.end()


def test_failure_to_open_fails_the_job_and_the_next_attempt_opens_again() -> None:
    harness = OneInputHarness(Asks(fail_once), error_policy=ErrorPolicy().skip())
    with pytest.raises(
        UserFunctionError, match=r"AsyncResource\(fail_once\) cannot be opened: .*: not there"
    ) as caught:
        harness.input.push(1, 2)
    assert "raise ConnectionError" in caught.value.traceback_text
    assert EVENTS == ["try"]
    again = OneInputHarness(Asks(fail_once))
    again.input.push(1, 2)
    assert again.output.records == [2, 4]
    assert EVENTS == ["try", "try"]
    harness.close()
    again.close()


def test_value_that_is_being_opened_is_not_closed() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection([1]).process(Asks(never)).to_sink(CollectSink[int]())
    env.set_callback_timeout(ms(50))
    with pytest.raises(UserFunctionError, match="did not return"):
        env.execute()
    assert EVENTS == []


def test_open_that_is_not_a_coroutine_function() -> None:
    with pytest.raises(UserFunctionError, match="which cannot be awaited"):
        OneInputHarness(Asks(dict)).input.push(1)


def test_invalid_arguments() -> None:
    with pytest.raises(ConfigurationError, match=r"open must be a coroutine function that accepts \(\)"):
        AsyncResource(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"close must be a coroutine function that accepts \(value\)"):
        AsyncResource(never, close=lambda: None)  # type: ignore[misc,arg-type]
