"""A program of which everything may change, for the test of all kinds of changes.

It is::

    in ──> before ... ──> (by key) count ──> after ... ──> out
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dsv2 import ErrorPolicy, ExecutionEnvironment, JobHandle, OutputTag
from dsv2.aggregates import Part
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.program import ProgramDescription
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.functions import (
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclaration, StateDeclarations, ValueStateDeclaration
from dsv2.testing import ManualClock, Stop, TestSource
from dsv2.watermark import WatermarkDeclaration, new_builder
from tests.durations import ms
from tests.support import reread
from tests.windows import WindowRecorder

RECORDS = range(60)
STOP = 25  # the number of records before the savepoint
COUNT = StateDeclarations.value_state("count", int, default=0)
TALLY = OutputTag("tally", tuple)
SKIP = ErrorPolicy().skip()
OTHER = StateDeclarations.value_state("other", int, default=0)
NEWEST = new_builder("newest").type_long()


class Pass(OneInputStreamProcessFunction[int, int]):
    """Forwards records, and emits each as a watermark. ``made``: Turns it into a value of the watermark."""

    def __init__(self, *declarations: WatermarkDeclaration[Any], made: Callable[[int], Any] = int) -> None:
        self.declarations = declarations
        self.made = made

    def declare_watermarks(self) -> tuple[WatermarkDeclaration[Any], ...]:
        return self.declarations

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        for declared in self.declarations:
            key = {} if declared.scope.key_type is None else {"key": record % 5}
            watermark = declared.new_watermark(self.made(record), **key)
            ctx.non_partitioned_context.watermark_manager.emit_watermark(watermark)
        output.collect(record)


class Numbered(OneInputStreamProcessFunction[Any, Any]):
    """Forwards records, and counts them in a field."""

    def __init__(self) -> None:
        self.number = 0

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.number += 1
        output.collect(record)


class Count(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Counts each key in the first of its states."""

    def __init__(self, *states: StateDeclaration) -> None:
        self.states = states or (COUNT,)

    def uses_states(self) -> tuple[StateDeclaration, ...]:
        return self.states

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        for state in self.states:
            if isinstance(state, ValueStateDeclaration):
                counted = ctx.state_manager.get_state(state)
                counted.update((counted.value() or 0) + 1)
        output.collect((record % 5, int(ctx.state_manager.get_state(self.states[0]).value())))


class RenamedCount(Count):
    """Another class with equal states."""


class CountAside(Count):
    """Emits to a side output as well."""

    def __init__(self, tag: OutputTag[tuple[int, int]]) -> None:
        super().__init__()
        self.tag = tag

    def declare_outputs(self) -> list[OutputTag[Any]]:
        return [self.tag]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        super().process_record(record, output, ctx)
        ctx.output(self.tag, (record % 5, ctx.state_manager.get_state(COUNT).value()))


class TimedCount(Count):
    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None: ...


class Silent(Count):
    """Declares states without using them."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect((record % 5, 0))


class CountInField(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Counts each key in a field."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.counts[record % 5] = self.counts.get(record % 5, 0) + 1
        output.collect((record % 5, self.counts[record % 5]))


class CountInKeyedField(CountInField):
    keyed_fields = ("counts",)


class CountInRecord(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Counts each key in the field ``count`` of a class."""

    def __init__(self, kind: Any, **fields: Any) -> None:
        self.new: Callable[[], Any] = lambda: kind(count=0, **fields)
        self.state = StateDeclarations.value_state("stock", kind)

    def uses_states(self) -> list[StateDeclaration]:
        return [self.state]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        state = ctx.state_manager.get_state(self.state)
        stock = state.value() or self.new()
        state.update(replace(stock, count=stock.count + 1))
        output.collect((record % 5, int(stock.count + 1)))


class CountTwice(TwoInputNonBroadcastStreamProcessFunction[int, int, Any]):
    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT, OTHER]

    def process_record_from_first_input(self, record: int, output: Any, ctx: Any) -> None:
        self._count(COUNT, record, output, ctx)

    def process_record_from_second_input(self, record: int, output: Any, ctx: Any) -> None:
        self._count(OTHER, record, output, ctx)

    def _count(self, declared: Any, record: int, output: Any, ctx: Any) -> None:
        state = ctx.state_manager.get_state(declared)
        state.update(state.value() + 1)
        output.collect((declared.name, record, state.value()))


class CountByRule(TwoInputBroadcastStreamProcessFunction[int, int, Any]):
    """The rule is used after the savepoint only, when it has certainly arrived."""

    RULES = StateDeclarations.map_state_builder("rules", str, int).build_broadcast()

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT, self.RULES]

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
        ctx.apply_to_all_partitions(
            lambda output, partition: partition.state_manager.get_state(self.RULES).put("rule", record)
        )

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        state = ctx.state_manager.get_state(COUNT)
        state.update(state.value() + 1)
        rule = ctx.state_manager.get_state(self.RULES).get("rule") if record >= STOP else None
        output.collect((record, state.value(), rule))


class CountAndLog(TwoOutputStreamProcessFunction[int, Any, Any]):
    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, first_output: Any, second_output: Any, ctx: Any) -> None:
        state = ctx.state_manager.get_state(COUNT)
        state.update(state.value() + 1)
        first_output.collect((record, state.value()))
        second_output.collect(record)


def by_five(record: int) -> int:
    return record % 5


def by_three(record: int) -> int:
    return record % 3


def one_input(env: Any, stream: Any, program: Program) -> Any:
    keyed = stream.key_by(program.key) if program.key else stream.shuffle()
    return keyed.process(program.count)


def side_output(env: Any, stream: Any, program: Program) -> Any:
    assert isinstance(program.count, CountAside)
    return stream.key_by(by_five).process(program.count).side_output(program.count.tag)


def two_inputs(env: Any, stream: Any, program: Program) -> Any:
    return stream.key_by(by_five).connect_and_process(stream.key_by(by_five), CountTwice())


def broadcast(env: Any, stream: Any, program: Program) -> Any:
    rules = env.from_collection([7]).with_uid("rules").broadcast()
    return stream.key_by(by_five).connect_and_process(rules, CountByRule())


def two_outputs(env: Any, stream: Any, program: Program) -> Any:
    return stream.key_by(by_five).process(CountAndLog())


def windowed(stream: Any, size: int) -> Any:
    """The stream in windows of event time."""
    generator = EventTimeExtension.new_watermark_generator_builder(abs).per_event_watermark()
    timed = stream.process(generator.build_as_process_function()).with_uid("timed")
    return timed.key_by(by_five).window(WindowStrategy.tumbling(ms(size)))


def windows(env: Any, stream: Any, program: Program) -> Any:
    return windowed(stream, 20).process(WindowRecorder())


def union(env: Any, stream: Any, program: Program, *added: int) -> Any:
    others = [env.from_collection([number]).with_uid(f"other {number}") for number in (7, *added)]
    united = stream.union(*others).with_uid("union").with_parallelism(program.parallelism)
    return united.key_by(by_five).process(program.count)


def longer_union(env: Any, stream: Any, program: Program) -> Any:
    return union(env, stream, program, 100)


def longer_windows(env: Any, stream: Any, program: Program) -> Any:
    return windowed(stream, 30).process(WindowRecorder())


def aggregates(kind: type, *, in_windows: bool = False, **parts: Part) -> Callable[[Any, Any, Program], Any]:
    """A shape with declared aggregates."""

    def build(env: Any, stream: Any, program: Program) -> Any:
        grouped = windowed(stream, 20) if in_windows else stream.key_by(by_five)
        return grouped.aggregate(kind, **parts)

    return build


@dataclass(frozen=True)
class Program:
    """The program, with everything that may change."""

    name: str = "numbers"
    source: str = "in"
    source_parallelism: int = 1
    records_per_batch: int | None = None
    more: tuple[str, ...] = ()  # sources with a sink of their own
    before: tuple[tuple[str, ProcessFunction], ...] = (("pass", Pass()),)
    policy: ErrorPolicy = field(default_factory=ErrorPolicy)
    shape: Callable[[Any, Any, Program], Any] = one_input
    key: Callable[[int], Any] | None = by_five
    count: ProcessFunction = field(default_factory=Count)
    uid: str | None = "count"
    parallelism: int = 2
    max_parallelism: int = 128
    after: tuple[tuple[str, ProcessFunction], ...] = ()
    sinks: tuple[str, ...] = ("out",)
    types: tuple[tuple[type, str], ...] = ()

    def build(self, *, stops: bool) -> tuple[ExecutionEnvironment, CollectSink[Any]]:
        env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1, batches=[7], clock=ManualClock()))
        for kind, formerly in self.types:
            env.register_type(kind, formerly=formerly)
        out = CollectSink[Any]()
        items = [*RECORDS[:STOP], Stop(), *RECORDS[STOP:]] if stops else RECORDS
        source = TestSource[Any](items, records_per_batch=self.records_per_batch)
        stream: Any = env.from_source(source).with_uid(self.source).with_parallelism(self.source_parallelism)
        for uid in self.more:
            env.from_collection([100, 101]).with_uid(uid).to_sink(out).with_uid(f"{uid} out")
        for uid, function in self.before:
            stream = stream.process(function).with_uid(uid).with_error_policy(self.policy)
        counted = self.shape(env, stream, self).with_parallelism(self.parallelism)
        counted.with_max_parallelism(self.max_parallelism).with_error_policy(self.policy)
        if self.uid is not None:
            counted.with_uid(self.uid)
        streams = [counted.first, counted.second] if hasattr(counted, "first") else [counted]
        for uid, function in self.after:
            streams = [streams[0].process(function).with_uid(uid), *streams[1:]]
        for number, stream in enumerate(streams):
            for sink in self.sinks:
                stream.to_sink(out).with_uid(f"{sink} {number}")
        return env, out

    def described(self) -> ProgramDescription:
        return reread(describe(self.build(stops=False)[0].build_plan(self.name)))

    def run(
        self, savepoint: Path | None = None, *, stops: bool = False, allow_dropped_state: bool = False
    ) -> tuple[JobHandle, Counter[Any]]:
        env, out = self.build(stops=stops)
        job = env.execute_async(self.name, savepoint=savepoint, allow_dropped_state=allow_dropped_state)
        job.await_termination()
        if (error := job.exception()) is not None:
            raise error
        return job, Counter(out.results)
