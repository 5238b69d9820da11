"""Functions that do not match the stream."""

from __future__ import annotations

from dsv2 import Collector, PartitionedContext
from tests.typing.given import Given


def wrong_record_type(g: Given) -> None:
    g.other_non_keyed.process(g.one)  # E: arg-type
    g.other_non_keyed.process(g.two_out)  # E: arg-type
    g.other_keyed.process(g.one, g.key_of_bytes)  # E: arg-type
    g.other_global.process(g.one)  # E: arg-type
    g.other_non_keyed.process(emit_text)  # E: arg-type


def wrong_kind_of_function(g: Given) -> None:
    g.non_keyed.process(g.two_in)  # E: call-overload
    g.keyed.process(g.with_side)  # E: call-overload
    g.global_.process(type(g.one))  # E: arg-type
    g.non_keyed.process(len)  # E: arg-type


def results_have_the_type_of_the_output(g: Given) -> None:
    g.non_keyed.process(g.one).process(g.one)  # E: arg-type
    g.non_keyed.process(g.two_out).second.process(g.one)  # E: arg-type
    g.non_keyed.map(str).filter(lambda text: text > 1)  # E: operator
    g.non_keyed.map(lambda record: record.upper())  # E: attr-defined
    g.non_keyed.flat_map(bool)  # E: arg-type


def a_broadcast_stream_is_only_a_side_input(g: Given) -> None:
    g.broadcast.process(g.one)  # E: attr-defined
    g.broadcast.key_by(g.by_text)  # E: attr-defined
    g.broadcast.to_sink(g.int_sink)  # E: attr-defined


def a_global_stream_is_global_already(g: Given) -> None:
    g.global_.global_()  # E: attr-defined


def emit_text(record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None:
    output.collect(str(record))
