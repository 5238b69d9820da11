"""Log records of jobs: which job, operator and subtask they name, and how they are formatted."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv2 import (
    Collector,
    ErrorPolicy,
    ExecutionEnvironment,
    NonPartitionedContext,
    PartitionedContext,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from dsv2.base.log_scope import LogScope, current_scope, in_operator, in_scope, in_scope_by_step
from dsv2.errors import ConfigurationError
from dsv2.functions import AsyncOneInputStreamProcessFunction, OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.sinks import ForeachBatchSink, ParallelSink, SinkBatch
from dsv2.sources import DataGeneratorSource
from dsv2.views.logs import JobFilter, JsonFormatter
from runtime_spark.frames.worker_logging import check_logging, configure_logging
from tests import ROOT
from tests.spans import Item, Span, Spans

SHOP = logging.getLogger("shop")
HIGHEST = new_builder("highest").type_long().combine_function_max().build()


class Kept(logging.Handler):
    """Keeps the message and the fields of each record."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(JobFilter())
        self.records: set[tuple[Any, ...]] = set()

    def emit(self, record: Any) -> None:
        self.records.add((record.getMessage(), record.job, record.operator, record.subtask))


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    SHOP.addHandler(handler)
    yield handler
    SHOP.removeHandler(handler)


class Talking(OneInputStreamProcessFunction[int, int]):
    """Logs in each callback."""

    def __init__(self, name: str) -> None:
        self.name = name

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [HIGHEST]

    def open(self, ctx: NonPartitionedContext[int]) -> None:
        SHOP.warning("%s open", self.name)
        ctx.metric_group.gauge("size", self.size)

    def size(self) -> int:
        SHOP.warning("%s gauge", self.name)
        return 1

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        SHOP.warning("%s before", self.name)
        output.collect(record)
        SHOP.warning("%s after", self.name)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(HIGHEST.new_watermark(record))

    def on_watermark(
        self, watermark: Watermark, output: Collector[int], ctx: NonPartitionedContext[int]
    ) -> WatermarkHandlingResult:
        SHOP.warning("%s watermark", self.name)
        return WatermarkHandlingResult.PEEK

    def end_input(self, ctx: NonPartitionedContext[int]) -> None:
        SHOP.warning("%s end", self.name)

    def close(self) -> None:
        SHOP.warning("%s close", self.name)


def talk(record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
    SHOP.warning("plain")
    output.collect(record)


def identity(number: int) -> int:
    SHOP.warning("map")
    return number


def key_of(number: int) -> int:
    SHOP.warning("key")
    return 0


class Asking(AsyncOneInputStreamProcessFunction[int, int]):
    """Logs after it has waited."""

    async def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        import asyncio

        await asyncio.sleep(0)
        SHOP.warning("async")
        output.collect(record)


class Tasks(ParallelSink[int]):
    """Logs in tasks."""

    def write(self, batch: SinkBatch[int]) -> None:
        SHOP.warning("task")


def run(build: Callable[[ExecutionEnvironment], object], *, checks: bool = False) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=checks))
    build(env)
    env.execute("numbers")


def test_operators_of_a_chain_are_told_apart(kept: Kept) -> None:
    def build(env: ExecutionEnvironment) -> None:
        first = env.from_collection([1, 2]).process(Talking("first")).with_uid("one")
        second = first.process(Talking("second")).with_uid("two")
        second.process(talk).with_uid("three").map(identity).with_uid("four").to_sink(ForeachBatchSink(lambda *_: None))

    run(build, checks=True)
    events = ("open", "gauge", "before", "after", "end", "close")
    expected = {(f"first {event}", "numbers", "one", 0) for event in events}
    expected |= {(f"second {event}", "numbers", "two", 0) for event in (*events, "watermark")}
    assert kept.records == expected | {("plain", "numbers", "three", 0), ("map", "numbers", "four", 0)}


def test_subtasks_are_told_apart(kept: Kept) -> None:
    def build(env: ExecutionEnvironment) -> None:
        env.set_parallelism(2)
        rebalanced = env.from_collection([1, 2]).process(talk).with_uid("f")
        rebalanced.to_sink(ForeachBatchSink(lambda *_: None))

    run(build)
    assert kept.records == {("plain", "numbers", "f", 0), ("plain", "numbers", "f", 1)}


def test_key_selector_of_a_chained_operator(kept: Kept) -> None:
    def build(env: ExecutionEnvironment) -> None:
        keyed = env.from_collection([1]).key_by(key_of).process(talk).with_uid("keyed")
        keyed.process(talk).with_uid("next").to_sink(ForeachBatchSink(lambda *_: None))

    run(build)
    assert {("plain", "numbers", "keyed", 0), ("plain", "numbers", "next", 0)} <= kept.records
    assert {record[1] for record in kept.records} == {"numbers"}


def test_function_with_an_error_policy(kept: Kept) -> None:
    def build(env: ExecutionEnvironment) -> None:
        first = env.from_collection([1]).process(Talking("first")).with_uid("one").with_error_policy(ErrorPolicy())
        second = first.process(Talking("second")).with_uid("two").with_error_policy(ErrorPolicy().skip(ValueError))
        second.to_sink(ForeachBatchSink(lambda *_: None))

    run(build)
    assert {(message.partition(" ")[0], operator) for message, _, operator, _ in kept.records} == {
        ("first", "one"),
        ("second", "two"),
    }


def test_async_function_in_a_chain(kept: Kept) -> None:
    def build(env: ExecutionEnvironment) -> None:
        asked = env.from_collection([1]).process(Asking()).with_uid("ask")
        asked.process(talk).with_uid("then").to_sink(ForeachBatchSink(lambda *_: None))

    run(build)
    assert kept.records == {("async", "numbers", "ask", 0), ("plain", "numbers", "then", 0)}


def test_source_and_the_functions_chained_to_it(kept: Kept) -> None:
    def read(index: int) -> int:
        SHOP.warning("read")
        return index

    def build(env: ExecutionEnvironment) -> None:
        numbers = env.from_source(DataGeneratorSource(read, count=2)).with_uid("in")
        numbers.map(identity).with_uid("map").to_sink(ForeachBatchSink(lambda *_: None))

    run(build)
    assert kept.records == {("read", "numbers", "in", 0), ("map", "numbers", "map", 0)}


class LoudSpans(Spans):
    """Logs when it discovers and reads splits."""

    def discover(self) -> list[Span]:
        SHOP.warning("discover")
        return super().discover()

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        SHOP.warning("read")
        return super().read(start, stop)


def test_source_with_splits(kept: Kept) -> None:
    def build(env: ExecutionEnvironment) -> None:
        env.from_source(LoudSpans({"a": 2})).with_uid("in").to_sink(ForeachBatchSink(lambda *_: None))

    run(build)
    assert kept.records == {("discover", "numbers", None, None), ("read", "numbers", "in", 0)}


def test_sinks(kept: Kept) -> None:
    def build(env: ExecutionEnvironment) -> None:
        env.set_parallelism(2)
        numbers = env.from_collection([1, 2])
        numbers.to_sink(ForeachBatchSink(lambda *_: SHOP.warning("driver"))).with_uid("on driver")
        numbers.to_sink(Tasks()).with_uid("in tasks")

    run(build)
    in_tasks = {("task", "numbers", "in tasks", subtask) for subtask in (0, 1)}
    assert kept.records == in_tasks | {("driver", "numbers", "on driver", None)}


def test_outside_of_jobs_there_are_no_fields(kept: Kept) -> None:
    SHOP.warning("hello")
    assert kept.records == {("hello", None, None, None)}
    assert current_scope() == LogScope()


def test_scopes_are_nested() -> None:
    with in_scope(LogScope("shop", "f", 1)):
        with in_operator("sink", 2):
            assert current_scope() == LogScope("shop", "sink", 2)
        assert current_scope() == LogScope("shop", "f", 1)


def test_scope_of_a_generator_ends_with_each_step() -> None:
    steps = in_scope_by_step(LogScope("shop", "in"), (current_scope().operator for _ in range(2)))
    for operator in steps:
        assert (operator, current_scope().operator) == ("in", None)


def test_own_fields_remain() -> None:
    record = logging.makeLogRecord({"job": "mine"})
    assert JobFilter().filter(record) is True
    assert (record.job, record.operator) == ("mine", None)  # type: ignore[attr-defined]


def formatted(log: Callable[[logging.Logger], object]) -> dict[str, Any]:
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, logger = Lines(), logging.Logger("shop")
    handler.setFormatter(JsonFormatter())
    handler.addFilter(JobFilter())
    logger.addHandler(handler)
    log(logger)
    (line,) = lines
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_record_as_json() -> None:
    with in_scope(LogScope("numbers", "f", 3)):
        found = formatted(lambda logger: logger.warning("%d of\nü", 5, extra={"order": 7, "path": Path("a")}))
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "WARNING",
        "logger": "shop",
        "message": "5 of\nü",
        "job": "numbers",
        "operator": "f",
        "subtask": 3,
        "order": 7,
        "path": "a",
    }


def test_exception_as_json() -> None:
    def log(logger: logging.Logger) -> None:
        try:
            raise ValueError("wrong")
        except ValueError:
            logger.exception("failed", stack_info=True)

    found = formatted(log)
    assert found["exception"].endswith("ValueError: wrong")
    assert found["stack"].startswith("Stack (most recent call last)")
    assert found["job"] is None


@pytest.mark.parametrize("config", [{}, {"version": 2}, "shop", [1]])
def test_wrong_configurations_of_workers_are_refused(config: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"worker_logging must be a mapping for logging.config.dictConfig"):
        check_logging(config)


def test_configuration_of_workers_keeps_loggers(kept: Kept) -> None:
    config = {"version": 1, "loggers": {"shop": {"level": "DEBUG", "handlers": []}}}
    assert check_logging(config) == config
    try:
        configure_logging(config)
        assert (SHOP.level, logging.getLogger("dsv2.job").disabled) == (logging.DEBUG, False)
    finally:
        SHOP.setLevel(logging.NOTSET)


def loggers() -> set[str]:
    """The names of the loggers of dsv2."""
    found = set()
    for file in (file for package in ("dsv2", "runtime_spark") for file in (ROOT / package).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        text = file.read_text()
        if "getLogger" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
                (name,) = node.args
                if isinstance(name, ast.Constant):
                    found.add(str(name.value))
                elif ast.unparse(name) == "__name__":
                    found.add(module)
    return found


def test_loggers_are_documented_and_below_dsv2() -> None:
    rows = re.findall(r"^\| (`dsv2.*?) \| (?:ERROR|WARNING)", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(.*?)`", row)} == (found := loggers())
    assert all(name.startswith("dsv2.") for name in found)
