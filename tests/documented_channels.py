"""The pipelines of the diagrams of channels in the documentation."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from dsv2 import Collector, ExecutionEnvironment
from dsv2.functions import OneInputStreamProcessFunction, on
from dsv2.model.context import NonPartitionedContext, PartitionedContext
from dsv2.sinks import CollectSink
from dsv2.views.explain import Explanation, explain
from dsv2.watermark import KeyedWatermark, Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder

BACKLOG = new_builder("backlog").type_float().combine_function_sum().build()
CLOSED = new_builder("closed-day").type_long().deliver_to("totals").build()
COMPLETE = new_builder("complete").type_bool().combine_wait_for_all_channels(True).per_key(int).build()


class Click(NamedTuple):
    user: int


class Declares(OneInputStreamProcessFunction[Any, Any]):
    def __init__(self, watermark: WatermarkDeclaration) -> None:
        self.watermark = watermark

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [self.watermark]

    def process_record(self, record: Any, output: Collector[Any], ctx: PartitionedContext[Any]) -> None: ...


class Score(OneInputStreamProcessFunction[int, str]):
    def process_record(self, record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None: ...

    @on(BACKLOG)
    def follow_backlog(
        self, watermark: Watermark[float], output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


class Totals(OneInputStreamProcessFunction[int, str]):
    def process_record(self, record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None: ...

    def on_watermark(
        self, watermark: Watermark, output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


class Sessions(OneInputStreamProcessFunction[Click, str]):
    def process_record(self, record: Click, output: Collector[str], ctx: PartitionedContext[str]) -> None: ...

    def on_key_watermark(
        self, watermark: KeyedWatermark[bool, int], output: Collector[str], ctx: PartitionedContext[str]
    ) -> None: ...


def combined() -> Explanation:
    """Three subtasks that report a backlog, and two that receive the sum."""
    env = _environment()
    requests = (
        env.from_collection([1], "requests").process(Declares(BACKLOG)).with_uid("read queue").with_parallelism(3)
    )
    requests.shuffle().process(Score()).with_uid("score").to_sink(CollectSink())
    return explain(env.build_plan("scores"))


def addressed() -> Explanation:
    """A watermark that passes one operator on its way to another, and does not go along another branch."""
    env = _environment()
    days = env.from_collection([1], "sales").process(Declares(CLOSED)).with_uid("close days")
    checked = days.shuffle().filter(bool).with_uid("check")
    checked.shuffle().process(Totals()).with_uid("totals").to_sink(CollectSink())
    days.shuffle().map(str).with_uid("archive").with_parallelism(1).to_sink(CollectSink())
    return explain(env.build_plan("sales"))


def per_key() -> Explanation:
    """A watermark that goes to the subtask of its key."""
    env = _environment()
    clicks = env.from_collection([Click(7)], "clicks").process(Declares(COMPLETE)).with_uid("logouts")
    clicks.key_by(lambda click: click.user).process(Sessions()).with_uid("sessions").with_parallelism(3).to_sink(
        CollectSink()
    )
    return explain(env.build_plan("clicks"))


def _environment() -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(2)
    return env
