"""A pipeline with most features of plans, whose explanation is recorded in ``tests/golden``.

``python -m tests.explained_program`` records it, and the JSON schema in the documentation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from datetime import timedelta
from typing import Any, NamedTuple

from dsv2 import (
    BroadcastStream,
    Collector,
    ErrorPolicy,
    ExecutionEnvironment,
    NonPartitionedContext,
    OutputTag,
    PartitionedContext,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import OneInputWindowContext, OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction, TwoInputBroadcastStreamProcessFunction
from dsv2.sinks import CollectSink, FileSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import BroadcastStateDeclaration, StateDeclaration, StateDeclarations, StateTtl
from dsv2.streams import WaitForBroadcast
from dsv2.views.explain import Explanation, ExplanationFormat, explain, json_schema
from tests import ROOT

GOLDEN = {"text": "plan.txt", "mermaid": "plan.mmd", "json": "plan.json"}

FULL = new_builder("stock-full").type_bool().combine_wait_for_all_channels(True).build()
REJECTED = OutputTag("rejected", str)


class Order(NamedTuple):
    product: str
    amount: int
    at: int


class Check(OneInputStreamProcessFunction[Order, Order]):
    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [FULL]

    def declare_outputs(self) -> Collection[OutputTag[Any]]:
        return [REJECTED]

    def process_record(self, record: Order, output: Collector[Order], ctx: PartitionedContext[Order]) -> None: ...


class Reserve(TwoInputBroadcastStreamProcessFunction[Order, int, Order]):
    LEFT = StateDeclarations.value_state("left", int, ttl=StateTtl(timedelta(days=1)))
    LIMITS = BroadcastStateDeclaration("limits", str, int)

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.LEFT, self.LIMITS]

    def process_record_from_non_broadcast_input(
        self, record: Order, output: Collector[Order], ctx: PartitionedContext[Order]
    ) -> None: ...

    def process_record_from_broadcast_input(self, record: int, ctx: NonPartitionedContext[Order]) -> None: ...

    def on_watermark_from_non_broadcast_input(
        self, watermark: Watermark, output: Collector[Order], ctx: NonPartitionedContext[Order]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.POLL


class Hourly(OneInputWindowStreamProcessFunction[Order, str]):
    def on_trigger(
        self, output: Collector[str], ctx: PartitionedContext[str], window: OneInputWindowContext[Order]
    ) -> None: ...


def order(number: int) -> Order:
    return Order("tea", 1, number)


def time_of(order: Order) -> int:
    return order.at


def pipeline(env: ExecutionEnvironment) -> None:
    """Build the pipeline."""
    env.set_parallelism(2)
    orders = env.from_source(DataGeneratorSource(order), "orders").with_uid("orders")
    limits: BroadcastStream[int] = env.from_collection([1, 2], "limits").with_uid("limits").broadcast()
    time = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
    checked = orders.map(lambda order: order).with_uid("parse").process(Check()).with_uid("check")
    checked.side_output(REJECTED).to_sink(CollectSink()).with_uid("rejects")
    reserved = (
        checked.key_by(lambda order: order.product, version=2)
        .connect_and_process(limits, Reserve(), wait_for_broadcast=WaitForBroadcast())
        .with_uid("reserve")
        .with_error_policy(ErrorPolicy().retry(ConnectionError, times=3).skip(ValueError, KeyError))
    )
    hours = WindowStrategy.tumbling(timedelta(hours=1))
    hourly = reserved.process(time).with_uid("time").key_by(lambda order: order.product).window(hours).process(Hourly())
    hourly.with_uid("hourly").with_parallelism(3).to_sink(FileSink("out", schema="total string")).with_uid("totals")


def recorded() -> Explanation:
    """The explanation of the pipeline."""
    env = ExecutionEnvironment.get_instance(runtime="local")
    pipeline(env)
    return explain(env.build_plan("orders"))


def golden_file(explanation: Explanation, format: str) -> str:
    """The contents of a golden file, with paths from the root of the repository, which must be the directory."""
    return explanation.render(ExplanationFormat(format)).replace(f"{ROOT}{os.sep}", "").rstrip("\n") + "\n"


SCHEMA = ROOT / "docs" / "assets" / "plan.schema.json"

if __name__ == "__main__":
    os.chdir(ROOT)
    from tests import explained_program  # its classes have the name of the module

    for format, name in GOLDEN.items():
        explanation = explained_program.recorded()
        (ROOT / "tests" / "golden" / name).write_text(golden_file(explanation, format))
    SCHEMA.write_text(json.dumps(json_schema(), indent=2) + "\n")
