"""Every kind of change between two programs: what a restart and a start from a savepoint do about it.

Program A runs until it is stopped, and program B, which has the change, starts from its savepoint. Either both together
have the right result, or the start is refused with a message that names the subject. ``docs/changing-a-job.md`` lists
the same changes, and is compared with this list.

The program is::

    in ──> before ... ──> (by key) count ──> after ... ──> out
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass, replace
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest

from dsv2 import (
    DroppedStateWarning,
    ErrorPolicy,
    ExecutionEnvironment,
    IncompatibleCheckpointError,
    JobHandle,
    OutputTag,
)
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy, window
from dsv2.functions import (
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.local import LocalRuntime
from dsv2.program.description import describe
from dsv2.program.differences import differences
from dsv2.program.dropped import dropped_state
from dsv2.program.stored_classes import unreadable_classes
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink
from dsv2.state import RedistributionStrategy, StateDeclaration, StateDeclarations, StateTtl, ValueStateDeclaration
from dsv2.testing import ManualClock, Stop, TestSource
from dsv2.watermark import LongWatermarkDeclaration, new_builder
from tests.documents import ROOT
from tests.durations import ms
from tests.windows import Told

RECORDS = range(60)
STOP = 25  # the number of records before the savepoint
COUNT = StateDeclarations.value_state("count", int, default=0)
TALLY = OutputTag("tally", tuple)
SKIP = ErrorPolicy().skip()
OTHER = StateDeclarations.value_state("other", int, default=0)
NEWEST = new_builder("newest").type_long()


class Pass(OneInputStreamProcessFunction[int, int]):
    """Forwards records, and emits each as a watermark."""

    def __init__(self, *declarations: LongWatermarkDeclaration) -> None:
        self.declarations = declarations

    def declare_watermarks(self) -> tuple[LongWatermarkDeclaration, ...]:
        return self.declarations

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        for declared in self.declarations:
            ctx.non_partitioned_context.watermark_manager.emit_watermark(declared.new_watermark(record))
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


def windows(env: Any, stream: Any, program: Program) -> Any:
    generator = EventTimeExtension.new_watermark_generator_builder(abs).per_event_watermark()
    timed = stream.process(generator.build_as_process_function()).with_uid("timed")
    return timed.key_by(by_five).process(window(WindowStrategy.tumbling(ms(20)), Told()))


def union(env: Any, stream: Any, program: Program, *added: int) -> Any:
    others = [env.from_collection([number]).with_uid(f"other {number}") for number in (7, *added)]
    united = stream.union(*others).with_uid("union").with_parallelism(program.parallelism)
    return united.key_by(by_five).process(program.count)


def longer_union(env: Any, stream: Any, program: Program) -> Any:
    return union(env, stream, program, 100)


def longer_windows(env: Any, stream: Any, program: Program) -> Any:
    generator = EventTimeExtension.new_watermark_generator_builder(abs).per_event_watermark()
    timed = stream.process(generator.build_as_process_function()).with_uid("timed")
    return timed.key_by(by_five).process(window(WindowStrategy.tumbling(ms(30)), Told()))


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

    def described(self) -> Any:
        return json.loads(json.dumps(describe(self.build(stops=False)[0].build_plan(self.name))))

    def run(
        self, savepoint: Path | None = None, *, stops: bool = False, allow_dropped_state: bool = False
    ) -> tuple[JobHandle, Counter[Any]]:
        env, out = self.build(stops=stops)
        job = env.execute_async(self.name, savepoint=savepoint, allow_dropped_state=allow_dropped_state)
        job.await_termination()
        if (error := job.exception()) is not None:
            raise error
        return job, Counter(out.results)


def same(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """The result of program A without an interruption."""
    return steady


def afresh(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """As if the later records were the first ones."""
    seen: Counter[int] = Counter()
    for record in RECORDS[STOP:]:
        seen[record % 5] += 1
        before[record % 5, seen[record % 5]] += 1
    return before


def also_later(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """The results after the savepoint are there twice."""
    return steady + (steady - before)


def once_later(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """Only the results before the savepoint are there twice."""
    half = Counter({result: count // 2 for result, count in steady.items()})
    return before + half - Counter({result: count // 2 for result, count in before.items()})


def with_more(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    return steady + Counter([100, 101])


def with_one_more(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """Another record with the key 0."""
    return steady + Counter([(0, 1 + max(count for key, count in steady if key == 0))])


def zeros(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    return before + Counter((record % 5, 0) for record in RECORDS[STOP:])


class Change(NamedTuple):
    """A change of program A. ``restart`` and ``savepoint``: "allowed", "refused" or "with permission"."""

    restart: str
    savepoint: str
    before: dict[str, Any]
    now: dict[str, Any]
    expected: Callable[[Counter[Any], Counter[Any]], Counter[Any]] = same
    says: str = "'count'"


def stock(*fields: Any, name: str = "Stock") -> Any:
    """A version of the class ``shop.Stock``, or of another one."""
    made = make_dataclass(name, fields)
    made.__module__ = "shop"
    return made


def shades(*names: str) -> Any:
    made = Enum("Shade", {name: number for number, name in enumerate(names)})  # type: ignore[misc]
    made.__module__ = "shop"
    return made


def counts_in(kind: Any, **fields: Any) -> dict[str, Any]:
    return {"count": CountInRecord(kind, **fields)}


def value(name: str, form: Any, **options: Any) -> dict[str, Any]:
    return {"count": Count(StateDeclarations.value_state(name, form, **options))}


def passing(*declarations: LongWatermarkDeclaration) -> dict[str, Any]:
    return {"before": (("pass", Pass(*declarations)),)}


def of_list(strategy: str) -> dict[str, Any]:
    declared = StateDeclarations.list_state_builder("seen", int)
    built = declared.redistribute_by(RedistributionStrategy[strategy]).build() if strategy else declared.build()
    return {"count": Count(COUNT, built)}


class Shop:
    """Versions of classes. As attributes of this module, the job would also use the earlier ones."""

    INTS = stock(("count", int))
    TWO_INTS = stock(("count", int), ("size", int))
    WITH_DEFAULT = stock(("count", int), ("size", int, 3))
    REORDERED = stock(("size", int), ("count", int))
    OPTIONAL = stock(("count", int), ("size", Optional[int]))  # noqa: UP045
    FLOATS = stock(("count", float))
    SHELF = stock(("count", int), name="Shelf")
    SHADES = shades("DARK", "LIGHT")
    MORE_SHADES = shades("LIGHT", "GREY", "DARK")
    SHADED = stock(("count", int), ("shade", SHADES))
    RESHADED = stock(("count", int), ("shade", MORE_SHADES))
    UNSHADED = stock(("count", int), ("shade", shades("LIGHT")))


TTL, EVENT_TTL = StateTtl(timedelta(hours=1)), StateTtl(timedelta(hours=1), time_characteristic="event-time")
MAX, MIN = NEWEST.combine_function_max().build(), NEWEST.combine_function_min().build()
IGNORED = NEWEST.combine_function_max().default_handling_strategy_ignore().build()
HELD, NUMBERED = (("pass", Pass()), ("numbered", Numbered())), (("numbered", Numbered()),)


def cents(count: str, version: int) -> int:
    return int(count)


SHAPES = {
    "one input": one_input,
    "two inputs": two_inputs,
    "broadcast": broadcast,
    "two outputs": two_outputs,
    "windows": windows,
    "union": union,
}
UP_AND_DOWN = {
    f"parallelism {way}, {kind}": Change("refused", "allowed", {"shape": shape}, {"shape": shape, "parallelism": now})
    for kind, shape in SHAPES.items()
    for way, now in (("up", 5), ("down", 1))
}

CHANGES: dict[str, Change] = {
    **UP_AND_DOWN,
    "parallelism of a source": Change("refused", "allowed", {}, {"source_parallelism": 3}),
    "parallelism with equal fields": Change("refused", "allowed", {}, {"parallelism": 3}),
    "parallelism with keyed fields": Change(
        "refused", "allowed", {"count": CountInKeyedField()}, {"count": CountInKeyedField(), "parallelism": 3}
    ),
    "parallelism with other fields": Change(
        "refused", "refused", {"count": CountInField()}, {"count": CountInField(), "parallelism": 3}, says="'counts'"
    ),
    "max parallelism": Change("refused", "allowed", {}, {"max_parallelism": 64}),
    "operator added at the source": Change("refused", "allowed", {}, {"before": (*NUMBERED, ("pass", Pass()))}),
    "operator added in the middle": Change("refused", "allowed", {}, {"before": HELD}),
    "operator added at the sink": Change("refused", "allowed", {}, {"after": NUMBERED}),
    "stateless operator removed": Change("refused", "allowed", {}, {"before": ()}),
    "operator with state removed": Change("refused", "with permission", {"before": HELD}, {}, says="'numbered'"),
    "operator moved": Change("refused", "allowed", {"before": HELD}, {"after": NUMBERED}),
    "uid changed": Change("refused", "with permission", {}, {"uid": "tally"}, afresh),
    "key selector changed": Change("refused", "refused", {}, {"key": by_three}),
    "function class renamed, with a uid": Change("allowed", "allowed", {}, {"count": RenamedCount()}),
    "function class renamed, without a uid": Change(
        "refused", "with permission", {"uid": None}, {"uid": None, "count": RenamedCount()}, afresh, says="Count"
    ),
    "side output declared": Change("allowed", "allowed", {}, {"count": CountAside(TALLY)}),
    "side output renamed": Change(
        "refused",
        "allowed",
        {"shape": side_output, "count": CountAside(TALLY), "after": NUMBERED},
        {"shape": side_output, "count": CountAside(OutputTag("tallies", tuple)), "after": NUMBERED},
    ),
    "error policy": Change("allowed", "allowed", {"policy": SKIP}, {"policy": SKIP.limit(total=5)}),
    "error policy added": Change("allowed", "allowed", {}, {"policy": SKIP}),
    "kind of an operator": Change("refused", "refused", {}, {"shape": two_outputs}),
    "processing-time timers": Change("refused", "allowed", {}, {"count": TimedCount()}),
    "size of windows": Change("refused", "refused", {"shape": windows}, {"shape": longer_windows}),
    "state added": Change("allowed", "allowed", {}, {"count": Count(COUNT, OTHER)}),
    "state removed": Change("with permission", "with permission", {"count": Count(COUNT, OTHER)}, {}, says="'other'"),
    "state renamed": Change("with permission", "with permission", {}, value("counted", int, default=0), afresh),
    "type of a state widened": Change("allowed", "allowed", {}, value("count", float, default=0.0)),
    "type of a state changed": Change("refused", "refused", {}, value("count", str)),
    "type of a state converted": Change(
        "allowed", "allowed", {}, value("count", float, default=0.0, version=2, migrate=lambda old, version: float(old))
    ),
    "kind of a state": Change("refused", "refused", {}, {"count": Silent(StateDeclarations.list_state("count", int))}),
    "mode of a state": Change("refused", "refused", of_list("SPLIT"), of_list(""), says="'seen'"),
    "time to live of a state": Change("refused", "refused", {}, value("count", int, default=0, ttl=TTL)),
    "clock of a time to live": Change(
        "refused", "refused", value("count", int, ttl=TTL), value("count", int, ttl=EVENT_TTL)
    ),
    "class with a new field with a default": Change(
        "allowed", "allowed", counts_in(Shop.INTS), counts_in(Shop.WITH_DEFAULT)
    ),
    "class with a new field without a default": Change(
        "refused", "refused", counts_in(Shop.INTS), counts_in(Shop.TWO_INTS, size=1), says="new field 'size'"
    ),
    "class without a field": Change("allowed", "allowed", counts_in(Shop.TWO_INTS, size=1), counts_in(Shop.INTS)),
    "class with fields in another order": Change(
        "allowed", "allowed", counts_in(Shop.TWO_INTS, size=1), counts_in(Shop.REORDERED, size=1)
    ),
    "class with a wider field": Change("allowed", "allowed", counts_in(Shop.INTS), counts_in(Shop.FLOATS)),
    "class with an optional field": Change(
        "allowed", "allowed", counts_in(Shop.TWO_INTS, size=1), counts_in(Shop.OPTIONAL, size=1)
    ),
    "class with a narrower field": Change(
        "refused", "refused", counts_in(Shop.FLOATS), counts_in(Shop.INTS), says="field 'count' of shop.Stock"
    ),
    "class renamed, registered": Change(
        "allowed", "allowed", counts_in(Shop.INTS), counts_in(Shop.SHELF) | {"types": ((Shop.SHELF, "shop.Stock"),)}
    ),
    "class renamed, not registered": Change(
        "refused", "refused", counts_in(Shop.INTS), counts_in(Shop.SHELF), says="'stock'"
    ),
    "enumeration with a new member": Change(
        "allowed",
        "allowed",
        counts_in(Shop.SHADED, shade=Shop.SHADES.DARK),
        counts_in(Shop.RESHADED, shade=Shop.MORE_SHADES.DARK),
    ),
    "enumeration without a member": Change(
        "refused",
        "refused",
        counts_in(Shop.SHADED, shade=Shop.SHADES.DARK),
        counts_in(Shop.UNSHADED, shade=None),
        says="'DARK'",
    ),
    "watermark declared": Change("refused", "allowed", {}, passing(MAX)),
    "watermark no longer declared": Change("refused", "allowed", passing(MAX), passing()),
    "combination of a watermark": Change("refused", "refused", passing(MAX), passing(MIN), says="'newest'"),
    "default handling of a watermark": Change("refused", "allowed", passing(MAX), passing(IGNORED)),
    "sink added": Change("allowed", "allowed", {}, {"sinks": ("out", "copy")}, also_later),
    "sink removed": Change(
        "allowed",
        "allowed",
        {"sinks": ("copy", "out")},
        {},
        once_later,
    ),
    "source added": Change("refused", "allowed", {}, {"more": ("more",)}, with_more),
    "source removed": Change("refused", "with permission", {"more": ("more",)}, {}, says="'more'"),
    "stream added to a union": Change("refused", "allowed", {"shape": union}, {"shape": longer_union}, with_one_more),
    "stream removed from a union": Change(
        "refused", "with permission", {"shape": longer_union}, {"shape": union}, says="'other 100'"
    ),
    "option of a source": Change("allowed", "allowed", {}, {"records_per_batch": 4}),
    "job name": Change("allowed", "allowed", {}, {"name": "renamed"}),
}


def on_restart(before: Program, now: Program, fields: Any) -> str:
    described, is_now = before.described(), now.described()
    plan = now.build(stops=False)[0].build_plan()
    if differences(described, is_now) or unreadable_classes([described], is_now, TypeRegistry.of(plan)):
        return "refused"
    return "with permission" if dropped_state(plan, [described], fields) else "allowed"


@pytest.mark.parametrize("change", CHANGES)
def test_change(change: str, tmp_path: Path) -> None:
    restart, outcome, first, second, expected, says = CHANGES[change]
    before, now = Program(**first), Program(**second)
    job, results = before.run(stops=True)
    job.savepoint(tmp_path / "a")
    assert on_restart(before, now, {}) == restart
    if outcome != "allowed":
        with pytest.raises(IncompatibleCheckpointError, match=re.escape(says)):
            now.run(tmp_path / "a")
    if outcome == "refused":
        with pytest.raises(IncompatibleCheckpointError, match=re.escape(says)):
            now.run(tmp_path / "a", allow_dropped_state=True)
    elif outcome == "with permission":
        with pytest.warns(DroppedStateWarning, match=re.escape(says)):
            later = now.run(tmp_path / "a", allow_dropped_state=True)[1]
        assert results + later == expected(results.copy(), before.run()[1])
    else:
        assert results + now.run(tmp_path / "a")[1] == expected(results.copy(), before.run()[1])


def test_guide_lists_these_changes() -> None:
    """The rows of the table in the guide that name this test."""
    row = re.compile(
        r"^\| .* \| (allowed|migrated|refused|with permission)\b.* \| (allowed|refused|with permission)\b.* \| (.*) \|$"
    )
    listed = {}
    for line in (ROOT / "docs" / "changing-a-job.md").read_text().splitlines():
        if found := row.match(line):
            listed.update(dict.fromkeys(re.findall("`([^`]*)`", found[3]), (found[1], found[2])))
    shown = {name: outcome for name, outcome in listed.items() if not name.startswith("test_")}
    migrated = {"allowed": "migrated", "with permission": "with permission", "refused": "refused"}
    assert shown == {
        name: (migrated[change.savepoint] if change.restart == "refused" else change.restart, change.savepoint)
        for name, change in CHANGES.items()
    }
