"""Sources and sinks of the wrong type."""

from __future__ import annotations

from dsv2.sinks import CollectSink
from tests.typing.given import Given


def wrong_sink(g: Given) -> None:
    g.non_keyed.to_sink(g.bytes_sink)  # E: arg-type
    g.keyed.process(g.one).to_sink(g.int_sink)  # E: arg-type
    g.global_.to_sink(CollectSink[str]())  # E: arg-type
    g.non_keyed.to_sink(print)  # E: arg-type


def results_have_the_type_of_the_sink(sink: CollectSink[int]) -> None:
    texts: list[str] = sink.results  # E: assignment
    texts.clear()


def wrong_source(g: Given) -> None:
    g.env.from_source([1, 2])  # E: arg-type
    g.env.from_source(g.int_sink)  # E: arg-type
    g.env.from_collection(7)  # E: arg-type
    g.env.from_collection(["a"]).process(g.one)  # E: arg-type
    g.env.from_dataframe([1], int)  # E: arg-type
