"""Records and streams of another type than that of the tag."""

from __future__ import annotations

from datetime import date

from dsv2 import Collector, OutputTag, PartitionedContext
from dsv2.extension.window import WindowStrategy
from tests.durations import ms
from tests.typing.given import Given

DAYS = OutputTag("days", date)
NUMBERS = OutputTag("numbers", int)
TEXT = OutputTag("text", "str")  # E: arg-type, var-annotated
UNKNOWN = OutputTag("unknown")  # E: var-annotated


def emit(record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
    ctx.output(DAYS, record)  # E: misc
    ctx.output(DAYS)  # E: call-arg
    ctx.output("days", record)  # E: arg-type
    ctx.output(record=record, tag=DAYS)  # E: call-arg


def read(g: Given) -> None:
    result = g.non_keyed.process(g.one)
    result.side_output(DAYS).to_sink(g.int_sink)  # E: arg-type
    result.side_output("days")  # E: arg-type
    result.side_output(OutputTag[date])  # E: arg-type
    g.non_keyed.side_output(DAYS)  # E: attr-defined
    result.to_sink(g.bytes_sink).side_output(DAYS)  # E: attr-defined
    result.side_output(DAYS).map(str).side_output(NUMBERS).to_sink(g.bytes_sink)  # E: arg-type


def later(one: date, other: date) -> date:
    return max(one, other)


def late(g: Given) -> None:
    days = g.other_keyed.window(WindowStrategy.tumbling(ms(10)))
    days.with_late_output(NUMBERS)  # E: arg-type
    days.with_late_output()  # E: call-arg
    days.with_late_output(DAYS).reduce(later).side_output(DAYS).to_sink(g.int_sink)  # E: arg-type
