"""Async functions that several tests use, and what they note."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

from dsv2 import StateDeclarations, new_builder
from dsv2.functions import AsyncOneInputStreamProcessFunction
from dsv2.model import AsyncSettings
from dsv2.testing import ManualClock, OneInputHarness

NOTES: list[Any] = []
CLOCKS: list[ManualClock] = []
TOTAL = StateDeclarations.value_state("total", int, default=0)
MARK = new_builder("mark").type_long().combine_function_max().build()


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


def calling(process: Callable[[Any, Any, Any], Awaitable[None]], **options: Any) -> OneInputHarness[Any, Any]:
    settings = {name: options.pop(name) for name in ("capacity", "timeout", "ordered") if name in options}
    options.setdefault("key", lambda record: 0)
    return OneInputHarness(Calling(process, **settings), **options)


A, B, C = Item("a", 30, "k"), Item("b", 10, "k"), Item("c", 20, "l")


async def add(record: Any, output: Any, ctx: Any) -> None:
    """Adds to the total of the key, with a pause in the middle."""
    total = ctx.state_manager.get_state(TOTAL)
    before = total.value()
    total.update(-1)
    await asyncio.sleep(0.01)
    total.update(before + record)
    output.collect((ctx.state_manager.current_key, total.value()))
