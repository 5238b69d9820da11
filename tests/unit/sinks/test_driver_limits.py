"""Sinks on the driver refuse more records than their limit, before they are all in its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dsv2 import Collector, ErrorPolicy, ExecutionEnvironment, JobError, PartitionedContext
from dsv2.arrow import ArrowForeachBatchSink
from dsv2.errors import ConfigurationError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink, DriverSink, ForeachBatchSink, PrintSink
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.rows import FrameEncoder
from tests.support import local_environment, operator_named


class One(NamedTuple):
    number: int


def ignore(_: Any, batch_id: int) -> None:
    pass


SINKS: dict[str, Callable[..., DriverSink[Any]]] = {
    "collect": CollectSink,
    "print": PrintSink,
    "foreach batch": lambda **limits: ForeachBatchSink(ignore, **limits),
    "arrow": lambda **limits: ArrowForeachBatchSink(ignore, One, **limits),
}


@pytest.mark.parametrize("kind", SINKS)
def test_one_record_too_many_in_a_micro_batch(kind: str) -> None:
    def run(**limits: Any) -> None:
        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=(10,)))
        env.from_collection(range(30)).map(One).to_sink(SINKS[kind](**limits)).with_name("Small").with_uid("small")
        env.execute()

    run(max_records=10)
    run(max_records=None, max_bytes=None)
    with pytest.raises(JobError) as refused:
        run(max_records=9)
    text = str(refused.value)
    assert text.startswith(f"The sink Small (uid 'small'), defined at {__file__}:")
    assert "receives more than 9 records in a micro-batch" in text
    assert "such as FileSink, KafkaSink or your own ParallelSink" in text
    assert "or set max_records (None: no limit)." in text


class Explode(OneInputStreamProcessFunction[int, int]):
    """Emits without an end; ``written`` is what the sink has received."""

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        for number in range(20_000):
            output.collect(number)


def test_error_policies_do_not_apply() -> None:
    env, sink = local_environment(), CollectSink[int](max_records=10_000)
    env.set_error_policy(ErrorPolicy().skip())
    env.from_collection([1]).process(Explode()).to_sink(sink)
    with pytest.raises(JobError, match="receives more than 10,000 records"):
        env.execute()
    assert sink.results == []


def encoder(sink: DriverSink[Any]) -> tuple[FrameEncoder, int]:
    env = local_environment()
    env.from_collection([1]).to_sink(sink).with_uid("out")
    plan = env.build_plan()
    return FrameEncoder(plan, Layout.of(plan), Codec(TypeRegistry())), operator_named(plan, "out").id


def test_tasks_on_spark_send_no_more_than_the_limit() -> None:
    for limits in ({"max_records": 25}, {"max_bytes": 4_000}):
        rows, sink = encoder(CollectSink(**limits))
        for _ in range(50):
            rows.emit(Frame(sink, 0, 0, RecordBatch(["x" * 100] * 10), []))
        assert rows.size < 5_000
        with pytest.raises(JobError, match=f"receives more than {next(iter(limits.values())):,} "):
            rows.take()
    rows, sink = encoder(CollectSink(max_records=20, max_bytes=4_000))
    for _ in range(2):
        rows.emit(Frame(sink, 0, 0, RecordBatch(["x" * 100] * 10), []))
    assert len(rows.take()) == 2


@pytest.mark.parametrize("name", ["max_records", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_limits_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number of at least 1"):
        CollectSink(**{name: value})


def test_own_sink_has_a_limit_of_its_own() -> None:
    class Own(DriverSink[int]):
        def write_batch(self, batches: Any, batch_id: int) -> None:
            pass

    limit = Own().driver_limit
    assert limit is not None
    assert limit.max_records is not None
    assert limit.max_bytes is not None
