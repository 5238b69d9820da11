"""Tasks that coroutines of async functions start and leave behind: the job fails, whenever they would have ended."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.errors import ContractError, UserFunctionError
from dsv2.functions import AsyncBatchProcessFunction, AsyncOneInputStreamProcessFunction
from dsv2.model import AsyncBatchSettings
from tests.async_functions import calling

LATER = 0.01


async def emit(record: int, output: Any, after: float = LATER) -> None:
    await asyncio.sleep(after)
    output.collect(record)


async def fails(record: int, output: Any) -> None:
    raise ValueError(record)


async def left(record: int, output: Any, ctx: Any) -> None:
    asyncio.create_task(emit(record, output))  # noqa: RUF006


async def left_unstarted(record: int, output: Any, ctx: Any) -> None:
    asyncio.ensure_future(emit(record, output, 0))  # noqa: RUF006


async def left_beside_awaited(record: int, output: Any, ctx: Any) -> None:
    one, _ = asyncio.create_task(emit(record, output, 0)), asyncio.create_task(emit(record, output))
    await one


async def left_for_hours(record: int, output: Any, ctx: Any) -> None:
    asyncio.create_task(emit(record, output, 3600))  # noqa: RUF006
    await asyncio.sleep(LATER)


async def left_after_emission(record: int, output: Any, ctx: Any) -> None:
    async def emit_and_stay() -> None:
        output.collect(record)
        await asyncio.sleep(1)

    asyncio.create_task(emit_and_stay())  # noqa: RUF006
    await asyncio.sleep(LATER)


async def left_at_first_completed(record: int, output: Any, ctx: Any) -> None:
    tasks = [asyncio.create_task(emit(record, output, seconds)) for seconds in (LATER, 2 * LATER)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def left_by_task(record: int, output: Any, ctx: Any) -> None:
    await asyncio.create_task(left(record, output, ctx))


async def swallows(record: int, output: Any, ctx: Any) -> None:
    async def quietly() -> None:
        with contextlib.suppress(Exception):
            await emit(record, output)

    asyncio.create_task(quietly())  # noqa: RUF006


@pytest.mark.parametrize(
    "process",
    [
        left, left_unstarted, left_beside_awaited, left_for_hours, left_after_emission, left_at_first_completed,
        left_by_task, swallows,
    ],
)  # fmt: skip
def test_task_that_is_left_behind_fails_the_job(process: Any) -> None:
    harness = calling(process)
    with pytest.raises(UserFunctionError, match=f"without awaiting the task .*started at {__file__}:.*Await") as caught:
        harness.input.push(7)
    assert isinstance(caught.value.cause, ContractError)
    assert caught.value.record == "7"
    assert harness.output.records == []


def test_exception_that_nothing_has_looked_at_fails_the_job() -> None:
    async def process(record: int, output: Any, ctx: Any) -> None:
        task = asyncio.create_task(fails(record, output))
        await asyncio.sleep(LATER)
        assert task.done()

    with pytest.raises(UserFunctionError, match="which failed with ValueError: 7"):
        calling(process).input.push(7)


async def gathers(record: int, output: Any, ctx: Any) -> None:
    await asyncio.gather(*(asyncio.create_task(emit(record + n, output)) for n in range(2)), asyncio.sleep(0))


async def groups(record: int, output: Any, ctx: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(emit(record, output))
        group.create_task(emit(record + 1, output, 2 * LATER))


async def polls(record: int, output: Any, ctx: Any) -> None:
    tasks = [asyncio.create_task(emit(record + n, output)) for n in range(2)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(LATER)


async def limits(record: int, output: Any, ctx: Any) -> None:
    await asyncio.wait_for(emit(record, output), 1)
    await asyncio.shield(emit(record + 1, output))


async def looks_at_exceptions(record: int, output: Any, ctx: Any) -> None:
    tasks = [asyncio.create_task(fails(record, output)), asyncio.create_task(emit(record, output))]
    done, _ = await asyncio.wait(tasks)
    for task in done:
        if task.exception() is not None:
            output.collect(record + 1)


async def cancels(record: int, output: Any, ctx: Any) -> None:
    task = asyncio.create_task(emit(9, output, 3600))
    await emit(record, output)
    task.cancel()
    await asyncio.wait([task])
    output.collect(record + 1)


async def refreshes(record: int, output: Any, ctx: Any) -> None:
    asyncio.create_task(asyncio.sleep(3600), context=contextvars.Context())  # noqa: RUF006
    output.collect(record)
    output.collect(record + 1)


@pytest.mark.parametrize("process", [gathers, groups, polls, limits, looks_at_exceptions, cancels, refreshes])
def test_tasks_that_are_awaited_or_have_a_context_of_their_own_are_right(process: Any) -> None:
    harness = calling(process)
    harness.input.push(1)
    assert sorted(harness.output.records) == [1, 2]


def test_record_that_the_policy_sets_aside_may_leave_tasks() -> None:
    async def process(record: int, output: Any, ctx: Any) -> None:
        if record == 1:
            await asyncio.gather(fails(record, output), emit(record, output))
        await emit(record, output, 5 * LATER)

    harness = calling(process, capacity=2, key=str, error_policy=ErrorPolicy().skip(ValueError))
    harness.input.push(1, 2)
    assert harness.output.records == [2]


def library(source: str) -> Callable[..., Any]:
    """A function of a module that is installed, not the user's."""
    module = ModuleType("client")
    file = f"{asyncio.__file__.rpartition('/')[0]}/client.py"
    exec(compile(source, file, "exec"), vars(module))
    found: Callable[..., Any] = vars(module)["start"]
    return found


def test_tasks_of_libraries_may_stay_but_may_not_use_the_call() -> None:
    start = library("import asyncio\ndef start(coroutine):\n    return asyncio.create_task(coroutine)")

    async def process(record: int, output: Any, ctx: Any) -> None:
        if record == 1:
            start(asyncio.sleep(3600))
        elif record == 2:
            start(emit(record, output))
        else:
            await asyncio.sleep(5 * LATER)

    harness = calling(process, capacity=1, key=str)
    harness.input.push(1)
    harness.input.push(3)
    with pytest.raises(
        UserFunctionError, match=f"The call for this record has ended, so {__file__}:[0-9]+ can"
    ) as caught:
        harness.input.push(2, 3, 3)
    assert caught.value.record == "2"
    harness.close()  # the sleeping task keeps it


def test_callback_of_the_loop_that_emits_too_late_fails_the_job() -> None:
    async def process(record: int, output: Any, ctx: Any) -> None:
        if record == 1:
            asyncio.get_running_loop().call_later(LATER, output.collect, record)
        else:
            await asyncio.sleep(5 * LATER)

    harness = calling(process, capacity=2, key=str)
    with pytest.raises(UserFunctionError, match="The call for this record has ended"):
        harness.input.push(1, 2)


class Batches(AsyncBatchProcessFunction[int, int]):
    async_settings = AsyncBatchSettings(batch_size=10)

    async def process_records(self, records: Any, output: Any, ctx: Any) -> None:
        for record in records:
            asyncio.create_task(emit(record, output))  # noqa: RUF006


class Leaves(AsyncOneInputStreamProcessFunction[int, int]):
    async def process_record(self, record: int, output: Any, ctx: Any) -> None:
        await left(record, output, ctx)


@pytest.mark.parametrize("function", [Batches, Leaves])
@pytest.mark.parametrize("policy", [ErrorPolicy(), ErrorPolicy().skip()])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_job_fails_whatever_its_policy(function: Any, policy: ErrorPolicy, parallelism: int) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(parallelism)
    env.from_collection(range(20)).process(function()).with_error_policy(policy).to_sink(CollectSink())
    with pytest.raises(UserFunctionError, match=r"ContractError: .*Await every"):
        env.execute()
