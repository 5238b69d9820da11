"""Only operators can be configured. Wrong configuration values."""

from __future__ import annotations

from dsv2 import Trigger
from tests.typing.given import Given


def a_partitioning_is_no_operator(g: Given) -> None:
    g.non_keyed.key_by(g.by_text).with_uid("u")  # E: attr-defined
    g.non_keyed.shuffle().with_parallelism(2)  # E: attr-defined
    g.non_keyed.global_().with_name("n")  # E: attr-defined
    g.keyed.broadcast().with_uid("u")  # E: attr-defined


def two_global_streams_are_configured_one_by_one(g: Given) -> None:
    g.global_.process(g.two_out).with_uid("u")  # E: attr-defined


def a_sink_is_the_end(g: Given) -> None:
    g.non_keyed.to_sink(g.int_sink).with_uid("u").process(g.one)  # E: attr-defined


def wrong_values(g: Given) -> None:
    g.non_keyed.process(g.one).with_uid(1)  # E: arg-type
    g.non_keyed.process(g.one).with_parallelism("2")  # E: arg-type
    g.env.set_execution_mode("BATCH")  # E: arg-type
    g.env.set_callback_timeout(60_000)  # E: arg-type
    g.env.get_instance("flink")  # E: arg-type
    g.env.execute("job", trigger=5)  # E: arg-type
    g.env.execute("job", checkpoint="folder")  # E: call-arg
    Trigger.processing_time("1 second")  # E: arg-type
    Trigger.processing_time(1_000)  # E: arg-type
    Trigger.continuous()  # E: attr-defined
