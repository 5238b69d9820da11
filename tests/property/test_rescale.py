"""A job that is rescaled between micro-batches continues unchanged, wherever its keys are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.errors import IncompatibleCheckpointError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.runtime.rescale import rescale
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.sinks import CollectSink
from dsv2.state import ListStateDeclaration, RedistributionMode, RedistributionStrategy, StateDeclarations, StateTtl
from tests.durations import ms
from tests.strategies import long_lists
from tests.support import Driver, broadcast_side, job_context, local_environment

COUNT = StateDeclarations.value_state("count", int, default=0)
RECENT = StateDeclarations.list_state("recent", int, ttl=StateTtl(ms(10)))
SPLIT = StateDeclarations.list_state_builder("split", int).redistribute_by(RedistributionStrategy.SPLIT).build()
UNION = StateDeclarations.list_state_builder("union", int).redistribute_by(RedistributionStrategy.UNION).build()


class Remembering(OneInputStreamProcessFunction[int, Any]):
    """Has state of every kind, and a timer for each key."""

    def uses_states(self) -> Any:
        return [COUNT, RECENT, SPLIT, UNION]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        ctx.metric_group.counter("records").inc()
        if record == 9:
            return  # a key without state
        states = ctx.state_manager
        count, recent = states.get_state(COUNT), states.get_state(RECENT)
        count.update(count.value() + 1)
        recent.add(count.value())
        states.get_state(SPLIT).add(record)
        ctx.processing_time_manager.register_timer(ctx.processing_time_manager.current_time() + record)
        output.collect((record, count.value(), recent.get()))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect((ctx.state_manager.current_key, "timer", timestamp))


class Job:
    """All subtasks of one operator."""

    def __init__(self, function: Any, parallelism: int, keyed: bool = True) -> None:
        self._function = function
        self._keyed = keyed
        self._drivers = self._build(parallelism)
        self._time = 0
        self._results: list[Any] = []
        for driver in self._drivers:
            driver.open()

    def _build(self, parallelism: int) -> list[Driver]:
        env = local_environment()
        stream: Any = env.from_collection(list[int](), "in")
        stream = stream.key_by(lambda number: number) if self._keyed else stream.shuffle()
        stream = stream.process(self._function).with_uid("f").with_parallelism(parallelism)
        stream.to_sink(CollectSink()).with_uid("out").with_parallelism(1)
        self.plan = env.build_plan()
        return [Driver(self.plan, "f", index) for index in range(parallelism)]

    def send(self, record: int) -> None:
        index = subtask_of(record, 128, len(self._drivers)) if self._keyed else record % len(self._drivers)
        self._drivers[index].send(record)

    def pass_time(self, ms: int) -> None:
        self._time += ms
        for driver in self._drivers:
            driver.pass_time(self._time)

    def rescale(self, parallelism: int) -> None:
        snapshots = [driver.subtask.snapshot() for driver in self._drivers]
        self._results = self.results()
        chain = self.plan.chains[1]
        blobs = rescale(snapshots, chain, parallelism, job_context(self.plan).codec, self.plan.declarations)
        self._drivers = self._build(parallelism)
        for driver, blob in zip(self._drivers, blobs, strict=True):
            driver.subtask.restore(blob)
            driver.pass_time(self._time)

    def results(self) -> list[Any]:
        return self._results + [record for driver in self._drivers for record in driver.sent_to("out")]

    def per_key(self) -> dict[Any, list[Any]]:
        groups: dict[Any, list[Any]] = {}
        for record in self.results():
            groups.setdefault(record[0], []).append(record[1:])
        return groups

    def progress(self) -> list[SubtaskReport]:
        return [driver.progress("f") for driver in self._drivers]

    def keys(self) -> list[set[Any]]:
        """The keys that each subtask has seen."""
        return [set(driver.subtask.head.keys()) for driver in self._drivers]

    def state(self, declaration: Any) -> list[Any]:
        """The content of a subtask state in each subtask."""
        return [
            driver.subtask.head.visit(None, lambda ctx: ctx.state_manager.get_state(declaration).get())
            for driver in self._drivers
        ]


STEPS = long_lists(
    st.tuples(st.just("record"), st.integers(0, 9))
    | st.tuples(st.just("pass"), st.integers(1, 6))
    | st.tuples(st.just("rescale"), st.integers(1, 5)),
    max_size=30,
)


@given(parallelism=st.integers(1, 5), steps=STEPS)
def test_rescaling_does_not_affect_keys(parallelism: int, steps: list[tuple[str, int]]) -> None:
    """Values, expiry and timers, compared with a job that is never rescaled."""
    steady, rescaled = Job(Remembering(), 1), Job(Remembering(), parallelism)
    for step, number in [*steps, ("rescale", 3), ("pass", 10)]:
        for job in (steady, rescaled):
            if step == "record":
                job.send(number)
            elif step == "pass":
                job.pass_time(number)
            elif job is rescaled:
                job.rescale(number)
            else:
                job.pass_time(0)  # a micro-batch begins here as well
    assert rescaled.per_key() == steady.per_key()
    sent = {number for step, number in steps if step == "record"}
    for index, keys in enumerate(rescaled.keys()):
        assert keys == {key for key in sent if subtask_of(key, 128, 3) == index}
    counted = [progress.counters.get("records", 0) for progress in rescaled.progress()]
    assert sum(counted) == sum(step == "record" for step, _ in steps)
    assert sum(progress.records_in for progress in rescaled.progress()) == sum(counted)
    assert sum(progress.timers for progress in rescaled.progress()) == steady.progress()[0].timers


def filled(declaration: Any, numbers: Sequence[int], parallelism: int) -> Job:
    class Filling(OneInputStreamProcessFunction[int, Any]):
        def uses_states(self) -> Any:
            return [declaration]

        def process_record(self, record: int, output: Any, ctx: Any) -> None:
            ctx.state_manager.get_state(declaration).add(record)

    job = Job(Filling(), parallelism, keyed=False)
    for number in numbers:
        job.send(number)
    return job


@given(
    st.lists(st.integers(0, 99), max_size=20), st.integers(1, 4), st.lists(st.integers(1, 5), min_size=1, max_size=3)
)
def test_split_lists_are_distributed_in_turn(numbers: list[int], parallelism: int, later: list[int]) -> None:
    job = filled(SPLIT, numbers, parallelism)
    for new in later:
        before = [number for share in job.state(SPLIT) for number in share]
        shares = job.state(SPLIT)
        job.rescale(new)
        expected = [before[index::new] for index in range(new)] if new != len(shares) else shares
        assert job.state(SPLIT) == expected
    assert Counter(number for share in job.state(SPLIT) for number in share) == Counter(numbers)


def test_union_lists_go_to_every_subtask() -> None:
    job = filled(UNION, range(5), 2)
    job.rescale(3)
    assert job.state(UNION) == [[0, 2, 4, 1, 3]] * 3


def test_identical_state_is_copied() -> None:
    copied = ListStateDeclaration("copied", int, RedistributionMode.IDENTICAL)
    rules = StateDeclarations.map_state_builder("rules", int, int).build_broadcast()
    env = local_environment()

    def on_rule(record: Any, ctx: Any) -> None:
        def store(output: Any, partition: Any) -> None:
            partition.state_manager.get_state(rules).put(record, record)
            partition.state_manager.get_state(copied).add(record)

        ctx.apply_to_all_partitions(store)

    function = broadcast_side(uses_states=lambda: [copied, rules], process_record_from_broadcast_input=on_rule)
    stream = env.from_collection(list[int]())
    stream.shuffle().connect_and_process(stream.broadcast(), function).with_uid("f").with_parallelism(2)
    plan = env.build_plan()
    drivers = [Driver(plan, "f", index).open() for index in range(2)]
    for driver in drivers:
        driver.send(1, 2, channel=1)
    snapshots = [driver.subtask.snapshot() for driver in drivers]
    blobs = rescale(snapshots, plan.chains[1], 3, job_context(plan).codec, plan.declarations)
    for blob in blobs:
        driver = Driver(plan, "f")
        driver.subtask.restore(blob)
        visit = driver.subtask.head.visit
        assert visit(None, lambda ctx: ctx.state_manager.get_state(copied).get()) == [1, 2]
        assert visit(None, lambda ctx: ctx.state_manager.get_state(rules).items()) == [(1, 1), (2, 2)]


@given(
    st.lists(st.one_of(st.integers(0, 9), st.just("restart")), max_size=8),
    st.integers(1, 3),
    st.lists(st.integers(1, 5), max_size=3),
)
def test_broadcasts_before_the_first_key_reach_every_key(steps: list[Any], parallelism: int, later: list[int]) -> None:
    rules = StateDeclarations.map_state_builder("rules", int, int).build_broadcast()

    def on_record(record: Any, output: Any, ctx: Any) -> None:
        output.collect(ctx.state_manager.get_state(rules).items())

    function = broadcast_side(
        uses_states=lambda: [rules],
        process_record_from_non_broadcast_input=on_record,
        process_record_from_broadcast_input=lambda record, ctx: ctx.state_manager.get_state(rules).put(record, -record),
    )

    def drivers_of(parallelism: int) -> tuple[Any, list[Driver]]:
        env = local_environment()
        stream = env.from_collection(list[int]())
        keyed = stream.key_by(lambda number: number).connect_and_process(stream.broadcast(), function)
        keyed.with_uid("f").with_parallelism(parallelism).to_sink(CollectSink()).with_uid("out").with_parallelism(1)
        plan = env.build_plan()
        return plan, [Driver(plan, "f", index) for index in range(parallelism)]

    plan, drivers = drivers_of(parallelism)
    for driver in drivers:
        driver.open()
        for step in steps:
            if step == "restart":
                driver.restart()
            else:
                driver.send(step, channel=1)
    for new in later:
        snapshots = [driver.subtask.snapshot() for driver in drivers]
        plan, drivers = drivers_of(new)
        for driver, blob in zip(
            drivers, rescale(snapshots, plan.chains[1], new, job_context(plan).codec, plan.declarations), strict=True
        ):
            driver.subtask.restore(blob)
    for driver in drivers:
        driver.send("key")
        assert driver.sent_to("out") == [[(rule, -rule) for rule in dict.fromkeys(steps) if rule != "restart"]]


class Lazy(Remembering):
    """Keeps handles in fields from the first record on."""

    state: Any = None
    counter: Any = None

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record == 0:
            self.counter = ctx.metric_group.counter("zeros")
        self.state = ctx.state_manager.get_state(COUNT)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (0, "the field 'counter' of the function: \"counter 'zeros'\" and its initial value"),
        (1, "the field 'state' of the function: \"state 'count'\" and its initial value"),
    ],
)
def test_handles_in_fields_are_named(record: int, said: str) -> None:
    job = Job(Lazy(), 2)
    job._drivers[0].send(record)
    with pytest.raises(IncompatibleCheckpointError) as refused:
        job.rescale(1)
    assert said in str(refused.value)


class ByConstant(Remembering):
    """Runs under one key in every subtask, like windows on non-keyed streams."""

    dsv2_partition_by_constant = True


def test_one_key_in_two_subtasks_cannot_be_merged() -> None:
    job = Job(ByConstant(), 2, keyed=False)
    job.send(0)
    job.rescale(1)
    job.rescale(2)
    job.send(0)
    job.send(1)
    with pytest.raises(IncompatibleCheckpointError, match=r"Two subtasks of .* have state for the key 0"):
        job.rescale(1)


def test_more_subtasks_than_key_groups() -> None:
    with pytest.raises(IncompatibleCheckpointError, match=r"cannot have 129 subtasks\. Its max parallelism is 128"):
        Job(Remembering(), 1).rescale(129)
