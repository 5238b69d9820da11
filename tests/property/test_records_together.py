"""Functions that take the records of a key together, compared with the same functions on single records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from dsv2 import CollectSink, ErrorPolicy, OutputTag, PartitionedContext, StateDeclarations, new_builder
from dsv2.errors import UserFunctionError
from dsv2.extension.join import JoinFunction
from dsv2.extension.join.unbounded import UnboundedJoin
from dsv2.functions import (
    DeduplicateFunction,
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.runtime.operator import grouping_processor
from dsv2.state import StateTtl
from dsv2.watermark import WatermarkHandlingResult
from tests.durations import ms
from tests.support import Driver, driven, local_environment, watermark

COUNT = StateDeclarations.value_state("count", int, default=0)
SEEN = StateDeclarations.list_state("seen", int)
BY_DIGIT = StateDeclarations.map_state("by digit", int, int)
LARGE = OutputTag("large", str)
POISON = 13
CALLS: list[str] = []
"""The calls of ``process_records``: functions are copied."""


class Item(NamedTuple):
    """A record."""

    key: int
    number: int


Step: TypeAlias = Sequence[Item | int] | str
"""The elements of a frame (numbers are watermarks), the end of a micro-batch, or a restart."""


def handle(record: Item, count: int, seen: list[int], ctx: PartitionedContext[str]) -> str:
    """Process a record as all functions do, except for the state."""
    if record.number == POISON:
        raise ValueError("poison")
    assert ctx.state_manager.current_key == record.key
    if record.number % 5 == 0:
        ctx.processing_time_manager.register_timer(10 + record.number)
    if record.number > 15:
        ctx.output(LARGE, f"{record}")
    return f"{record.key}: {count}, {seen}"


def one(record: Item, collect: Callable[[str], object], ctx: PartitionedContext[Any]) -> None:
    states = ctx.state_manager
    states.get_state(SEEN).add(record.number)
    count = states.get_state(COUNT).update_with(lambda count: count + 1)
    collect(handle(record, count, states.get_state(SEEN).get(), ctx))
    states.get_state(BY_DIGIT).update_with(record.number % 3, lambda total: total + record.number, 0)


def several(records: Sequence[Item], collect: Callable[[str], object], ctx: PartitionedContext[Any]) -> None:
    CALLS.append("several")
    states = ctx.state_manager
    count, seen = states.get_state(COUNT).value(), states.get_state(SEEN).get()
    totals = defaultdict(int, states.get_state(BY_DIGIT).items())
    for record in records:
        count, seen = count + 1, [*seen, record.number]
        collect(handle(record, count, seen, ctx))
        totals[record.number % 3] += record.number
    states.get_state(COUNT).update(count)
    states.get_state(SEEN).update(seen)
    states.get_state(BY_DIGIT).put_all(totals)


class _Declaring:
    def declare_watermarks(self) -> Any:
        return [new_builder("w").type_long().combine_function_max().build()]


class _Stateful(_Declaring):
    def uses_states(self) -> Any:
        return [COUNT, SEEN, BY_DIGIT]

    def declare_outputs(self) -> Any:
        return [LARGE]


class OneByOne(_Stateful, OneInputStreamProcessFunction[Item, str]):
    """Takes single records."""

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        one(record, output.collect, ctx)

    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        ctx.apply_to_all_partitions(
            lambda output, ctx: output.collect(
                f"{ctx.state_manager.current_key}: {ctx.state_manager.get_state(COUNT).value()} at {watermark.value}"
            )
        )
        return WatermarkHandlingResult.PEEK

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(f"{ctx.state_manager.current_key}: {ctx.state_manager.get_state(SEEN).get()} at {timestamp}")


class Together(OneByOne):
    """Takes the records of a key together."""

    def process_records(self, records: Sequence[Item], output: Any, ctx: Any) -> None:
        several(records, output.collect, ctx)


class Copied(Together):
    """Overrides ``process_record`` only, so that the inherited ``process_records`` must not be called."""

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        super().process_record(record, output, ctx)


@st.composite
def programs(draw: st.DrawFn, numbers: st.SearchStrategy[int]) -> list[Step]:
    """Random frames, in several micro-batches."""
    keys = draw(st.integers(1, 5))
    elements = st.one_of(*[st.builds(Item, st.integers(1, keys), numbers)] * 6, st.integers(0, 100))
    frames = st.lists(elements, max_size=20)
    return draw(st.lists(st.one_of(*[frames] * 4, st.sampled_from(["batch", "restart"])), max_size=8))


ANY = st.integers(0, 20).filter(lambda number: number != POISON)


def run(driver: Driver, program: Sequence[Step], channels: int = 1) -> None:
    now = 0
    for number, step in enumerate(program):
        if step == "restart":
            driver.restart()
        elif step == "batch":
            driver.subtask.end_batch()
            now += 12
            driver.pass_time(now)
        else:
            driver.send(
                *(watermark(element) if isinstance(element, int) else element for element in step),
                channel=number % channels,
            )
    driver.subtask.end_batch()
    driver.subtask.flush()


def by_key(driver: Driver) -> Any:
    """The results of each key in order, and between which watermarks they were emitted."""
    found: dict[str, list[Any]] = defaultdict(list)
    place = 0
    for element in driver.sent_to("out"):
        if isinstance(element, str):
            found[element.split(":")[0]].append((place, element))
        elif isinstance(element, Item):
            found[str(element.key)].append((place, element))
        else:
            place += 1
            found["watermarks"].append(element)
    return dict(found)


@given(program=programs(ANY))
def test_subclass_with_another_process_record_takes_single_records(program: list[Step]) -> None:
    CALLS.clear()
    run(driven(lambda stream: stream.key_by(lambda item: item.key).process(Copied()).with_uid("f")), program)
    assert not CALLS


def test_error_names_the_key_and_its_records() -> None:
    driver = driven(lambda stream: stream.key_by(lambda item: item.key).process(Together()).with_uid("f"))
    with pytest.raises(UserFunctionError) as caught:
        driver.send(Item(1, 1), Item(2, 2), Item(1, POISON))
    assert caught.value.callback == "process_records"
    assert caught.value.key == "1"
    assert "Item(key=1, number=1), Item(key=1, number=13)" in str(caught.value)


def test_error_of_the_key_selector_names_the_record() -> None:
    def key(item: Item) -> int | None:
        return 1 if item.number else None

    driver = driven(lambda stream: stream.key_by(key).process(Together()).with_uid("f"))
    with pytest.raises(UserFunctionError, match=r"(?s)key selector.*Item\(key=2, number=0\)"):
        driver.send(Item(1, 1), Item(2, 0), Item(1, 1))


@pytest.mark.parametrize("size", [1, 3])
def test_most_keys_with_a_single_record_are_taken_one_by_one(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping_processor, "_BATCHES_BETWEEN_TRIALS", 2)
    CALLS.clear()
    driver = driven(lambda stream: stream.key_by(lambda item: item.key).process(Together()).with_uid("f"))
    for _ in range(6):
        driver.send(*(Item(key, 1) for key in range(3) for _ in range(size)))
    batches = {1: 2, 3: 6}[size]
    assert len(CALLS) == 3 * batches


class TwoOutputs(_Stateful, TwoOutputStreamProcessFunction[Item, str, str]):
    """Emits to both outputs."""

    def process_record(self, record: Item, first_output: Any, second_output: Any, ctx: Any) -> None:
        one(record, lambda text: (first_output.collect(text), second_output.collect(text)), ctx)

    def on_processing_timer(self, timestamp: int, first_output: Any, second_output: Any, ctx: Any) -> None:
        second_output.collect(f"{timestamp}")


class TwoOutputsTogether(TwoOutputs):
    """The same together."""

    def process_records(self, records: Sequence[Item], first_output: Any, second_output: Any, ctx: Any) -> None:
        several(records, lambda text: (first_output.collect(text), second_output.collect(text)), ctx)


class TwoInputs(_Stateful, TwoInputNonBroadcastStreamProcessFunction[Item, Item, str]):
    """Both inputs share the state."""

    def process_record_from_first_input(self, record: Item, output: Any, ctx: Any) -> None:
        one(record, output.collect, ctx)

    def process_record_from_second_input(self, record: Item, output: Any, ctx: Any) -> None:
        one(record, lambda text: output.collect(f"{text}!"), ctx)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(f"{ctx.state_manager.current_key}: {timestamp}")


class TwoInputsTogether(TwoInputs):
    """The same together."""

    def process_records_from_first_input(self, records: Sequence[Item], output: Any, ctx: Any) -> None:
        several(records, output.collect, ctx)

    def process_records_from_second_input(self, records: Sequence[Item], output: Any, ctx: Any) -> None:
        several(records, lambda text: output.collect(f"{text}!"), ctx)


class Broadcast(_Stateful, TwoInputBroadcastStreamProcessFunction[Item, int, str]):
    """Ignores what is broadcast."""

    def process_record_from_non_broadcast_input(self, record: Item, output: Any, ctx: Any) -> None:
        one(record, output.collect, ctx)

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
        pass

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(f"{ctx.state_manager.current_key}: {timestamp}")


class BroadcastTogether(Broadcast):
    """The same together."""

    def process_records_from_non_broadcast_input(self, records: Sequence[Item], output: Any, ctx: Any) -> None:
        several(records, output.collect, ctx)


class Pairs(JoinFunction[Item, Item, str]):
    """Emits each pair."""

    def process_record(self, left: Item, right: Item, output: Any, ctx: Any) -> None:
        output.collect(f"{left.key}: {left.number}, {right.number}")


class JoinTogether(_Declaring, UnboundedJoin[Item, Item, str]):
    """The join."""


class JoinOneByOne(JoinTogether):
    """Overrides the callbacks for single records, so that the others are not called."""

    def process_record_from_first_input(self, record: Item, output: Any, ctx: Any) -> None:
        super().process_record_from_first_input(record, output, ctx)

    def process_record_from_second_input(self, record: Item, output: Any, ctx: Any) -> None:
        super().process_record_from_second_input(record, output, ctx)


class DeduplicateTogether(_Declaring, DeduplicateFunction[Item]):
    """The function of ``deduplicate``."""


class DeduplicateOneByOne(DeduplicateTogether):
    """The same for ``deduplicate``."""

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        super().process_record(record, output, ctx)


def _key(item: Item) -> int:
    return item.key


def _one_input(function: Any) -> Driver:
    return driven(lambda stream: stream.key_by(_key).process(function).with_uid("f"))


def _two_outputs(function: Any) -> Driver:
    return driven(lambda stream: stream.key_by(_key).process(function).with_uid("f").second)


def _two_inputs(function: Any) -> Driver:
    env = local_environment()
    left, right = (env.from_collection(list[Item](), name).key_by(_key) for name in ("left", "right"))
    left.connect_and_process(right, function).with_uid("f").to_sink(CollectSink()).with_uid("out")
    return Driver(env.build_plan(), "f").open()


def _broadcast(function: Any) -> Driver:
    env = local_environment()
    keyed, others = (env.from_collection(list[Item](), name) for name in ("left", "right"))
    result = keyed.key_by(_key).connect_and_process(others.broadcast(), function).with_uid("f")
    result.to_sink(CollectSink()).with_uid("out")
    return Driver(env.build_plan(), "f").open()


TTL = StateTtl(ms(20))
KINDS: dict[str, tuple[Callable[[Any], Driver], Callable[[], Any], Callable[[], Any]]] = {
    "one input": (_one_input, OneByOne, Together),
    "two outputs": (_two_outputs, TwoOutputs, TwoOutputsTogether),
    "two inputs": (_two_inputs, TwoInputs, TwoInputsTogether),
    "broadcast": (_broadcast, Broadcast, BroadcastTogether),
    "join": (_two_inputs, lambda: JoinOneByOne(Pairs(), TTL), lambda: JoinTogether(Pairs(), TTL)),
    "deduplicate": (_one_input, lambda: DeduplicateOneByOne(TTL), lambda: DeduplicateTogether(TTL)),
}


@pytest.mark.parametrize("kind", KINDS)
@given(program=programs(ANY))
def test_results_and_state_are_those_of_single_records(kind: str, program: list[Step]) -> None:
    CALLS.clear()
    new_driver, *variants = KINDS[kind]
    single, together = (new_driver(variant()) for variant in variants)
    for driver in (single, together):
        run(driver, program, channels=2 if new_driver is _two_inputs else 1)
    assert by_key(together) == by_key(single)
    assert sorted(map(repr, together.rows())) == sorted(map(repr, single.rows()))
    event("together" if CALLS else "never together")


def _calls_super(base: type[Any]) -> Any:
    """A function that overrides the callbacks for records of a key with calls of the inherited ones."""

    def overriding(name: str) -> Callable[..., None]:
        def process_records(self: Any, *arguments: Any) -> None:
            CALLS.append(name)
            getattr(super(kind, self), name)(*arguments)

        return process_records

    names = [name for name in dir(base) if name.startswith("process_records")]
    kind = type("CallsSuper", (base,), {name: overriding(name) for name in names})
    return kind()


@pytest.mark.parametrize("kind", ["one input", "two outputs", "two inputs", "broadcast"])
@given(program=programs(ANY))
def test_inherited_process_records_handles_each_record(kind: str, program: list[Step]) -> None:
    CALLS.clear()
    new_driver, new_single, _ = KINDS[kind]
    single, together = new_driver(new_single()), new_driver(_calls_super(type(new_single())))
    for driver in (single, together):
        run(driver, program, channels=2 if new_driver is _two_inputs else 1)
    assert by_key(together) == by_key(single)
    event("together" if CALLS else "never together")


@given(program=programs(st.integers(0, 20)))
def test_error_policy_sets_aside_single_records(program: list[Step]) -> None:
    policy = ErrorPolicy().skip(ValueError)
    drivers = []
    for function in (OneByOne(), Together()):
        drivers.append(
            driven(
                lambda stream, function=function: (  # type: ignore[misc]
                    stream.key_by(_key).process(function).with_uid("f").with_error_policy(policy)
                )
            )
        )
        run(drivers[-1], program)
    single, together = drivers
    assert by_key(together) == by_key(single)
    assert together.progress("f").counters == single.progress("f").counters
