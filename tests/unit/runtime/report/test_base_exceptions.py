"""Failures are named even if they derive from BaseException. Interruptions pass through unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from dsv2 import ExecutionEnvironment, JobError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.model import RecordBatch
from dsv2.sinks import CollectSink, ForeachBatchSink, ParallelSink, SinkBatch, SinkInfo
from dsv2.sources import DataGeneratorSource, Portion
from dsv2.streams.outputs import ConfiguredSink
from tests.spans import Item, Span, Spans
from tests.support import local_environment


class OwnError(BaseException):
    """Not an ``Exception``."""


def fails(*args: Any) -> NoReturn:
    raise OwnError("on purpose")


def interrupted(*args: Any) -> NoReturn:
    raise KeyboardInterrupt


class Store(ParallelSink[int]):
    def __init__(self, begin: Callable[..., Any], write: Callable[..., Any]) -> None:
        self._begin, self._write = begin, write

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        self._begin()

    def write(self, batch: SinkBatch[int]) -> None:
        self._write()


class Reading(Spans):
    def __init__(self, fail: Callable[..., NoReturn]) -> None:
        super().__init__({"a": 3})
        self._fail = fail

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        yield RecordBatch([Item("a", 0)])
        self._fail()


class Planning(Reading):
    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        self._fail()


def nothing(*args: Any) -> None: ...


PLACES: list[tuple[Callable[[ExecutionEnvironment, Any], Any], str]] = [
    (lambda env, fail: env.from_collection([1]).map(fail), "callback: process_record\n  record:   1"),
    (lambda env, fail: env.from_collection([1]).key_by(fail).process(nothing), "callback: key selector\n  record:   1"),
    (lambda env, fail: env.from_source(DataGeneratorSource(fail, count=1)), "callback: read"),
    (lambda env, fail: env.from_source(Reading(fail)), "callback: read"),
    (lambda env, fail: env.from_source(Planning(fail)), "failed on the driver, in advance"),
    (
        lambda env, fail: env.from_collection([1]).process(
            EventTimeExtension.new_watermark_generator_builder(fail).build_as_process_function()
        ),
        "OwnError: on purpose",
    ),
    (lambda env, fail: env.from_collection([1]).to_sink(ForeachBatchSink(fail)), "of the sink .* raised on batch 0"),
    (lambda env, fail: env.from_collection([1]).to_sink(Store(fail, nothing)), "failed before batch 0"),
    (lambda env, fail: env.from_collection([1]).to_sink(Store(nothing, fail)), "failed on batch 0, subtask 0"),
]


@pytest.mark.parametrize(("build", "where"), PLACES)
def test_errors_of_user_code_are_named(build: Callable[[ExecutionEnvironment, Any], Any], where: str) -> None:
    env = local_environment()
    if not isinstance(built := build(env, fails), ConfiguredSink):
        built.to_sink(CollectSink())
    with pytest.raises(JobError, match=where) as failed:
        env.execute()
    assert "OwnError: on purpose" in str(failed.value)


@pytest.mark.parametrize(("build", "where"), PLACES)
def test_interruption_is_not_a_failure(build: Callable[[ExecutionEnvironment, Any], Any], where: str) -> None:
    env = local_environment()
    if not isinstance(built := build(env, interrupted), ConfiguredSink):
        built.to_sink(CollectSink())
    with pytest.raises(KeyboardInterrupt):
        env.execute()
