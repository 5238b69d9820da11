"""Mistakes with resources and operators that need no function."""

from __future__ import annotations

from datetime import date, timedelta

import narwhals as nw

from dsv2 import Resource, StateTtl
from dsv2.extension.window import (
    CountTrigger,
    DeltaTrigger,
    TriggerContext,
    TriggerResult,
    WindowStrategy,
    WindowTrigger,
)
from dsv2.functions import TwoInputBroadcastStreamProcessFunction
from dsv2.streams import WaitForBroadcast
from tests.typing.given import Given


def resources() -> None:
    Resource(date.today())  # E: arg-type
    Resource(date.today, close=len)  # E: misc
    Resource(date.today, date.isoformat)  # E: call-arg
    Resource(date.today).get().decode()  # E: attr-defined


def operators(g: Given) -> None:
    g.non_keyed.union(g.other_non_keyed)  # E: arg-type
    g.non_keyed.union(g.keyed)  # E: arg-type
    g.keyed.union(g.keyed)  # E: attr-defined
    g.non_keyed.deduplicate(str)  # E: call-arg
    g.non_keyed.deduplicate(str, 5)  # E: arg-type
    g.non_keyed.deduplicate(date.isoformat, None)  # E: arg-type
    g.non_keyed.sample("half")  # E: arg-type
    g.non_keyed.limit(10).sample(0.5)  # E: attr-defined
    g.global_.union(g.non_keyed)  # E: arg-type
    g.global_.union(g.other_global)  # E: arg-type
    g.global_.map(date.isoformat)  # E: arg-type
    g.keyed.filter(date.isoformat)  # E: arg-type
    g.keyed.map(str).aggregate(int)  # E: attr-defined
    g.broadcast.map(str)  # E: attr-defined
    g.non_keyed.where(len)  # E: arg-type
    g.keyed.select(date, year=5)  # E: arg-type
    g.global_.with_columns("Row")  # E: arg-type
    g.broadcast.where(nw.col("number") > 1)  # E: attr-defined


def waits(g: Given, f: TwoInputBroadcastStreamProcessFunction[int, date, bytes]) -> None:
    WaitForBroadcast("complete")  # E: arg-type
    g.keyed.connect_and_process(g.other_broadcast, f, wait_for_broadcast=True)  # E: call-overload
    g.keyed.connect_and_process(g.other_keyed, g.two_in, wait_for_broadcast=WaitForBroadcast())  # E: call-overload


class Wrong(WindowTrigger[int]):
    def on_record(self, record: int, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        ctx.register_timer(5)  # E: attr-defined
        return True  # E: return-value


def triggers() -> None:
    CountTrigger("3")  # E: arg-type
    DeltaTrigger(1, len)  # E: arg-type
    WindowStrategy.global_().with_trigger(CountTrigger)  # E: arg-type


def lifetimes() -> None:
    StateTtl(timedelta(1), time_characteristic="event")  # E: arg-type
