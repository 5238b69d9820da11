"""Mistakes with declared aggregates and with keyed state in columns."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from dsv2 import KeyedPartitionStream
from dsv2.aggregates import ArgMax, Count, Custom, Key, Mean, Sum
from dsv2.arrow import ArrowCollector, ArrowContext, ArrowProcessFunction
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclarations


class Click(NamedTuple):
    user: str
    value: int


class Total(NamedTuple):
    user: str
    value: int


TOTALS_BY_NAME = StateDeclarations.map_state("by-name", str, Total)
TOTALS = StateDeclarations.value_state("totals", Total)


def aggregates(keyed: KeyedPartitionStream[str, Click]) -> None:
    keyed.aggregate(Total, user=Key(), value="sum")  # E: arg-type
    keyed.aggregate(Total, user=Key(), value=Sum(5))  # E: arg-type
    keyed.aggregate(Total, user=Key(), value=Sum())  # E: call-arg
    keyed.aggregate(Total, user=Key(), value=Mean(5))  # E: arg-type
    keyed.aggregate(Total, user=Key(), value=Mean())  # E: call-arg
    keyed.aggregate(Total, user=Key(), value=Sum("value", filter="value > 5"))  # E: arg-type
    keyed.aggregate(Total, user=ArgMax("user", "value"), value=Count())  # E: arg-type, call-arg
    keyed.aggregate(Total, user=ArgMax("user"), value=Count())  # E: call-arg
    keyed.aggregate(Total, user=Key(), value=Custom("value", sum))  # E: arg-type
    keyed.aggregate(Total, user=Key("user"), value=Count())  # E: arg-type
    keyed.aggregate(Total, user=Key(), value=Count()).to_sink(CollectSink[Click]())  # E: arg-type
    keyed.window(5)  # E: arg-type


class Totals(ArrowProcessFunction[Click, Total]):
    def process_batch(self, batch: pa.Table, output: ArrowCollector[Total], ctx: ArrowContext[Total]) -> None:
        ctx.keyed_state(TOTALS_BY_NAME)  # E: call-overload
        ctx.keyed_state(TOTALS).value()  # E: attr-defined
        ctx.keyed_state(TOTALS).aggregate(batch["user"], {"value": 1}, {"value": 5})  # E: dict-item
