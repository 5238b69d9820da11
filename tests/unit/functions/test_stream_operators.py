"""Union, deduplicate, sample and limit: arguments, expiry, rescaling and errors. The results are in conformance."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dsv2 import CollectSink, Dsv2Error, ExecutionEnvironment, JobError, StateTtl
from dsv2.errors import ConfigurationError, PlanError
from dsv2.functions import DeduplicateFunction, OneInputStreamProcessFunction, SampleFunction
from dsv2.graph import OperatorKind
from dsv2.graph.record_types import declared_type
from dsv2.graph.state_detection import may_keep_state
from dsv2.testing import OneInputHarness
from dsv2.watermark import new_builder
from tests.durations import ms

ALIGNED = new_builder("aligned").type_long().combine_wait_for_all_channels(True).aligned().build()


def same(record: int) -> int:
    return record


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda s: s.union(), PlanError, "union at .* takes at least one other stream"),
        (lambda s: s.union(s.key_by(same)), PlanError, "not a KeyedPartitionStream. Call key_by afterwards"),
        (lambda s: s.union([s]), PlanError, "takes streams without partitioning, not a list"),
        (lambda s: s.union(s.broadcast()), PlanError, "not a BroadcastStream"),
        (
            lambda s: s.global_().union(s),
            PlanError,
            "takes global streams, not a NonKeyedPartitionStream. Call global_",
        ),
        (lambda s: s.key_by(same).map(5), PlanError, "map at .* takes a callable"),
        (lambda s: s.global_().flat_map(5), PlanError, "flat_map at .* takes a callable"),
        (lambda s: s.union(new_stream()), PlanError, "belong to different environments"),
        (lambda s: s.deduplicate("key", ms(1)), PlanError, "deduplicate at .* takes a callable"),
        (lambda s: s.deduplicate(same, 5), ConfigurationError, "ttl must be a datetime.timedelta"),
        (lambda s: s.deduplicate(same, ms(0)), ConfigurationError, "ttl must be at least 1 ms"),
        (lambda s: s.deduplicate(same, ms(1), version=0), PlanError, "version"),
        (lambda s: s.sample(0), ConfigurationError, "fraction must be more than 0 and at most 1, not 0"),
        (lambda s: s.sample(1.5), ConfigurationError, "fraction must be"),
        (lambda s: s.sample("half"), ConfigurationError, "fraction must be"),
        (lambda s: s.sample(float("nan")), ConfigurationError, "fraction must be"),
        (lambda s: s.sample(0.5, seed="x"), ConfigurationError, "seed must be a whole number"),
        (lambda s: s.limit(-1), ConfigurationError, "limit: count must be a whole number of at least 0"),
        (lambda s: s.limit(2.0), ConfigurationError, "limit: count must be"),
    ],
)
def test_wrong_arguments_are_refused(build: Callable[[Any], object], error: type[Dsv2Error], message: str) -> None:
    with pytest.raises(error, match=message):
        build(new_stream())


def new_stream() -> Any:
    return ExecutionEnvironment.get_instance(runtime="local").from_collection([1])


class Aligner(OneInputStreamProcessFunction[int, int]):
    def __init__(self, *declared: Any) -> None:
        self.declared = declared

    def declare_watermarks(self) -> Any:
        return self.declared

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(ALIGNED.new_watermark(record))


def test_aligned_watermark_before_a_union_is_refused() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    stream = env.from_collection([1])
    stream.process(Aligner(ALIGNED)).map(same).union(stream).to_sink(CollectSink[int]())
    with pytest.raises(PlanError, match=r"aligned watermark 'aligned', which .* declares, cannot pass a union"):
        env.execute()


def test_aligned_watermark_that_is_declared_elsewhere_fails_at_a_union() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    stream = env.from_collection([1])
    stream.process(Aligner()).union(stream).process(Aligner(ALIGNED)).to_sink(CollectSink[int]())
    with pytest.raises(JobError, match="aligned watermark 'aligned' cannot pass a union"):
        env.execute()


def test_union_has_the_type_of_its_streams() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    stream = env.from_collection([1])
    stream.union(stream).to_sink(CollectSink[int]())
    plan = env.build_plan()
    (union,) = (operator for operator in plan.operators if operator.kind is OperatorKind.UNION)
    assert declared_type(plan, union, 0) is int


def test_union_keeps_nothing() -> None:
    assert not may_keep_state(_union_function())


def _union_function() -> Any:
    env = ExecutionEnvironment.get_instance(runtime="local")
    stream = env.from_collection([1])
    return stream.union(stream)._node.body


@pytest.mark.parametrize(
    ("ttl", "emitted"),
    [
        (StateTtl(ms(100)), [0, 100, 200]),
        (StateTtl(ms(100), "on-read-and-write"), [0]),
        (None, [0]),
    ],
)
def test_key_is_forgotten_after_its_time_to_live(ttl: StateTtl | None, emitted: list[int]) -> None:
    harness = OneInputHarness(DeduplicateFunction[int](ttl), key=lambda record: "same")
    for now in range(0, 240, 20):
        harness.input.push(now)
        harness.advance_clock(timedelta(milliseconds=20))
    assert harness.output.records == emitted
    if ttl is not None:
        harness.advance_clock(ms(1000))
        assert harness.keys == []


def test_deduplication_moves_with_its_keys() -> None:
    records = list(range(20))
    old = [
        OneInputHarness(DeduplicateFunction[int](None), key=same, parallelism=2, subtask=subtask) for subtask in (0, 1)
    ]
    for harness in old:
        harness.input.push(*(record for record in records if harness.owns(record)))
    snapshots = [harness.snapshot() for harness in old]
    for subtask in range(3):
        new = OneInputHarness(
            DeduplicateFunction[int](None), key=same, parallelism=3, subtask=subtask, rescaled=snapshots
        )
        own = [record for record in range(30) if new.owns(record)]
        new.input.push(*own)
        assert new.output.records == [record for record in own if record >= 20]


def sampled(fraction: float, seed: int, subtask: int = 0, count: int = 20_000, **options: Any) -> list[int]:
    harness = OneInputHarness(SampleFunction[int](fraction, seed), parallelism=2, subtask=subtask, **options)
    harness.input.push(*range(count))
    return harness.output.records


@pytest.mark.parametrize("fraction", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_sample_has_the_fraction(fraction: float) -> None:
    found = sampled(fraction, 0)
    deviation = (20_000 * fraction * (1 - fraction)) ** 0.5
    assert abs(len(found) - 20_000 * fraction) < 4 * deviation
    first, second = (sum(place <= record < place + 10_000 for record in found) for place in (0, 10_000))
    assert abs(first - second) < 8 * deviation


def test_sample_depends_on_seed_and_subtask() -> None:
    assert sampled(0.5, 0) == sampled(0.5, 0)
    assert sampled(0.5, 0) != sampled(0.5, 1)
    assert sampled(0.5, 0) != sampled(0.5, 0, subtask=1)


def test_sample_continues_after_a_restart() -> None:
    harness = OneInputHarness(SampleFunction[int](0.3, 5), parallelism=2)
    for record in range(1_000):
        harness.input.push(record)
        if record % 100 == 0:
            harness.restart()
    assert harness.output.records == sampled(0.3, 5, count=1_000)


def test_sample_may_be_rescaled() -> None:
    snapshots = []
    for subtask in range(2):
        harness = OneInputHarness(SampleFunction[int](0.5, 0), parallelism=2, subtask=subtask)
        harness.input.push(*range(100))
        snapshots.append(harness.snapshot())
    after = OneInputHarness(SampleFunction[int](0.5, 0), parallelism=3, subtask=2, rescaled=snapshots)
    after.input.push(*range(1_000))
    assert 400 < len(after.output.records) < 600
