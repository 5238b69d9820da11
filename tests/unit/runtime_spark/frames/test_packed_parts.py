"""Tasks of a stage get the functions of that stage only: Spark sends them with every stage of every micro-batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import narwhals as nw
import pyarrow as pa
import pytest

from dsv2 import Collector, PartitionedContext
from dsv2.checkpoint.description import describe
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import Plan
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink, FileSink, Sink
from dsv2.sources import DataGeneratorSource
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.worker import RestoredProgram, load_job, pack_job, pack_part
from runtime_spark.platform.closures import to_bytes
from tests.support import local_environment

LARGE = 300_000


class Padded(OneInputStreamProcessFunction[int, int]):
    """A function with a large table."""

    def __init__(self, letter: str) -> None:
        self.table = letter * LARGE

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        output.collect(record)


class PaddedGenerator:
    def __init__(self) -> None:
        self.table = "s" * LARGE

    def __call__(self, index: int) -> int:
        return index


def two_levels() -> Plan:
    env = local_environment(parallelism=2)
    numbers = env.from_source(DataGeneratorSource(PaddedGenerator(), count=3)).process(Padded("a"))
    numbers.key_by(abs).process(Padded("b")).to_sink(CollectSink())
    return env.build_plan()


def packed(plan: Plan) -> bytes:
    return pack_job(plan, Layout.of(plan), TypeRegistry.of(plan))


def operators_of(plan: Plan, level: int) -> set[int]:
    return {operator.id for head in Layout.of(plan).levels[level] for operator in plan.chains[head]}


def tables_in(data: bytes) -> str:
    return "".join(letter for letter in "sab" if letter.encode() * LARGE in data)


def test_stage_has_its_own_functions_and_the_sources_that_it_reads() -> None:
    plan = two_levels()
    whole = packed(plan)
    assert tables_in(whole) == "sab"
    assert tables_in(pack_part(whole, operators_of(plan, 0))) == "sa"
    assert tables_in(pack_part(whole, operators_of(plan, 1))) == "b"
    assert tables_in(pack_part(whole)) == ""
    assert load_job(pack_part(whole)).layout == load_job(whole).layout


def test_functions_chained_to_sources_are_in_every_part() -> None:
    env = local_environment()
    env.set_parallelism(2)
    source = env.from_source(DataGeneratorSource(PaddedGenerator(), count=3)).with_parallelism(1)
    source.process(Padded("a")).with_parallelism(1).key_by(abs).process(Padded("b")).to_sink(CollectSink())
    plan = env.build_plan()
    chained = {operator.id for operator in plan.chained_to_sources}
    part = load_job(pack_part(packed(plan)))
    assert set(part.functions) == chained
    assert set(part.source_functions) == chained


def test_restore_from_a_savepoint_has_the_whole_program() -> None:
    plan = two_levels()
    layout, registry = Layout.of(plan), TypeRegistry.of(plan)
    origin = RestoredProgram(describe(plan), {})
    whole = pack_job(plan, layout, registry, origin=origin)
    assert pack_part(whole, operators_of(plan, 1)) == whole
    assert to_bytes(replace(load_job(whole), functions={})) != whole


class Click(NamedTuple):
    cents: int


@pytest.mark.parametrize("on_tables", [True, False])
@pytest.mark.parametrize(("sink", "takes_columns"), [(FileSink("out", schema=Click), True), (CollectSink(), False)])
def test_tasks_know_which_sources_read_columns(sink: Sink[Any], *, takes_columns: bool, on_tables: bool) -> None:
    env = local_environment()
    clicks = env.from_dataframe(pa.table({"cents": [1]}), Click)
    (clicks.where(nw.col("cents") > 0, Click) if on_tables else clicks).to_sink(sink)
    plan = env.build_plan()
    for one in (plan, load_job(packed(plan)).plan, load_job(pack_part(packed(plan))).plan):
        assert one.processes_columns(one.operators[0]) is (on_tables or takes_columns)
