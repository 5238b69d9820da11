"""Per-key watermarks: where they go, in which order, what is kept of them, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import (
    Collector,
    CollectSink,
    ErrorPolicy,
    ExecutionEnvironment,
    JobError,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    OutputTag,
    PartitionedContext,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputPartitionedContext,
    TwoOutputStreamProcessFunction,
    WatermarkDeclaration,
    new_builder,
)
from dsv2.errors import ContractError, UserFunctionError
from dsv2.functions import AsyncOneInputStreamProcessFunction, on
from dsv2.local import LocalRuntime
from dsv2.runtime.operator.key_watermarks import _COMBINERS
from dsv2.runtime.state.keyed_store import Domain
from dsv2.savepoint import Savepoint
from dsv2.testing import ManualClock, OneInputHarness, Stop, TestSource, TwoInputNonBroadcastHarness, TwoOutputHarness
from dsv2.watermark import KeyedWatermark
from tests.unit.local.test_local_savepoints import Program

DONE = new_builder("done").type_long().combine_function_max().per_key(int).build()


class Visit(NamedTuple):
    """A record. ``number`` below 0: emit a watermark with it for the user instead."""

    user: int
    number: int


def user_of(visit: Visit) -> int:
    return visit.user


def visits(users: int, *numbers: int) -> list[Visit]:
    return [Visit(user, number) for number in numbers for user in range(users)]


class Emit(OneInputStreamProcessFunction[Visit, Visit]):
    """Passes visits on, and emits the others as watermarks."""

    def __init__(self, declaration: Any = DONE) -> None:
        self.declaration = declaration

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [self.declaration]

    def process_record(self, record: Visit, output: Collector[Visit], ctx: PartitionedContext[Visit]) -> None:
        if record.number >= 0:
            output.collect(record)
        else:
            watermark = self.declaration.new_watermark(-record.number, key=record.user)
            ctx.non_partitioned_context.watermark_manager.emit_watermark(watermark)


class Watch(OneInputStreamProcessFunction[Visit, Any]):
    """Emits visits, and watermarks as triples that begin with the current key."""

    def process_record(self, record: Visit, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(record)

    def on_key_watermark(self, watermark: KeyedWatermark, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        assert ctx.timestamp is None
        output.collect((ctx.state_manager.current_key, watermark.key, watermark.value))


class Grouping(Watch):
    """Gets visits of a user together."""

    def process_records(self, records: Any, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        for record in records:
            output.collect(record)


def test_it_ends_at_the_next_keyed_function() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    sink = CollectSink[Any]()
    stream = env.from_collection(visits(2, 1, -1)).process(Emit()).key_by(user_of).process(Passing()).with_uid("first")
    stream.key_by(user_of).process(Watch()).with_uid("second").to_sink(sink)
    env.execute()
    assert sorted(sink.results) == visits(2, 1)


class Passing(OneInputStreamProcessFunction[Visit, Visit]):
    def process_record(self, record: Visit, output: Collector[Visit], ctx: PartitionedContext[Visit]) -> None:
        output.collect(record)


def test_forwarding_is_explicit() -> None:
    class Again(Passing):
        def on_key_watermark(
            self, watermark: KeyedWatermark, output: Collector[Visit], ctx: PartitionedContext[Visit]
        ) -> None:
            ctx.non_partitioned_context.watermark_manager.emit_watermark(watermark)

        def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
            return [DONE]

    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    sink = CollectSink[Any]()
    env.set_parallelism(2)
    stream = env.from_collection(visits(2, 1, 1, -1)).process(Emit()).key_by(user_of).process(Again()).with_uid("first")
    stream.key_by(user_of).process(Watch()).with_uid("second").to_sink(sink)
    env.execute()
    assert sorted(told for told in sink.results if len(told) == 3) == [(0, 0, 1), (1, 1, 1)]


def test_key_without_records_has_a_partition() -> None:
    harness = OneInputHarness(Watch(), key=user_of, declarations=[DONE])
    harness.input.push_watermark(DONE.new_watermark(3, key=7))
    assert harness.output.records == [(7, 7, 3)]
    assert harness.keys == [7]
    assert not harness.output.watermarks


def test_two_inputs_are_handled_separately() -> None:
    class Both(TwoInputNonBroadcastStreamProcessFunction[Visit, Visit, Any]):
        def process_record_from_first_input(self, record: Visit, output: Any, ctx: Any) -> None: ...

        def process_record_from_second_input(self, record: Visit, output: Any, ctx: Any) -> None: ...

        def on_key_watermark_from_first_input(
            self, watermark: KeyedWatermark, output: Collector[Any], ctx: PartitionedContext[Any]
        ) -> None:
            output.collect(("first", ctx.state_manager.current_key, watermark.value))

        def on_key_watermark_from_second_input(
            self, watermark: KeyedWatermark, output: Collector[Any], ctx: PartitionedContext[Any]
        ) -> None:
            output.collect(("second", ctx.state_manager.current_key, watermark.value))

    harness = TwoInputNonBroadcastHarness(Both(), first_key=user_of, second_key=user_of, declarations=[DONE])
    for channel, value in ((harness.first_input, 3), (harness.second_input, 2), (harness.first_input, 3)):
        channel.push_watermark(DONE.new_watermark(value, key=7))
    assert harness.output.records == [("first", 7, 3), ("second", 7, 2)]


def test_two_outputs() -> None:
    class Two(TwoOutputStreamProcessFunction[Visit, int, int]):
        def process_record(self, record: Visit, first_output: Any, second_output: Any, ctx: Any) -> None: ...

        def on_key_watermark(
            self,
            watermark: KeyedWatermark,
            first_output: Collector[int],
            second_output: Collector[int],
            ctx: TwoOutputPartitionedContext[int, int],
        ) -> None:
            second_output.collect(watermark.value)

    harness = TwoOutputHarness(Two(), key=user_of, declarations=[DONE])
    harness.input.push_watermark(DONE.new_watermark(3, key=7))
    assert (harness.first_output.records, harness.second_output.records) == ([], [3])


@pytest.mark.parametrize("parallelism", [1, 3])
def test_broadcast_side_reaches_the_subtask_of_the_key(parallelism: int) -> None:
    class Both(TwoInputBroadcastStreamProcessFunction[Visit, Visit, Any]):
        def process_record_from_non_broadcast_input(
            self, record: Visit, output: Collector[Any], ctx: PartitionedContext[Any]
        ) -> None: ...

        def process_record_from_broadcast_input(self, record: Visit, ctx: NonPartitionedContext[Any]) -> None: ...

        def on_key_watermark_from_broadcast_input(
            self, watermark: KeyedWatermark, output: Collector[Any], ctx: PartitionedContext[Any]
        ) -> None:
            output.collect((ctx.state_manager.current_key, watermark.value))

    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    sink = CollectSink[Any]()
    rules = env.from_collection(visits(5, -1)).process(Emit()).broadcast()
    main = env.from_collection(visits(5, 1)).key_by(user_of).connect_and_process(rules, Both())
    main.with_parallelism(parallelism).with_uid("both").to_sink(sink)
    env.execute()
    assert sorted(sink.results) == [(user, 1) for user in range(5)]


def test_error_policy_covers_the_callback() -> None:
    class Failing(Watch):
        def on_key_watermark(
            self, watermark: KeyedWatermark, output: Collector[Any], ctx: PartitionedContext[Any]
        ) -> None:
            super().on_key_watermark(watermark, output, ctx)
            if watermark.value == 2:
                raise ValueError

    skipping = ErrorPolicy().skip(ValueError)
    harness = OneInputHarness(Failing(), key=user_of, declarations=[DONE], error_policy=skipping)
    for value in (1, 2, 3):
        harness.input.push_watermark(DONE.new_watermark(value, key=7))
    assert harness.output.records == [(7, 7, 1), (7, 7, 3)]
    harness = OneInputHarness(Failing(), key=user_of, declarations=[DONE])
    with pytest.raises(UserFunctionError, match=r"(?s)on_key_watermark.*7"):
        harness.input.push_watermark(DONE.new_watermark(2, key=7))


def entry_of(harness: OneInputHarness[Any, Any], key: int) -> Any:
    return harness._task._store.find(key) or {}


def test_values_are_removed_when_they_have_expired() -> None:
    builder = new_builder("done").type_long().combine_function_max().expire_after(timedelta(seconds=2))
    declaration = builder.per_key(int).build()
    harness = OneInputHarness(Watch(), key=user_of, channels=2, declarations=[declaration])
    harness.input.push_watermark(declaration.new_watermark(5, key=7))
    harness.advance_clock(timedelta(seconds=1))
    harness.input.push_watermark(declaration.new_watermark(3, key=7), channel=1)
    assert {_COMBINERS, Domain.KEY_WATERMARKS} <= entry_of(harness, 7).keys()
    harness.advance_clock(timedelta(seconds=1))
    assert harness.output.records == [(7, 7, 5), (7, 7, 3)]
    harness.advance_clock(timedelta(seconds=1))
    assert entry_of(harness, 7) == {}
    assert harness._subtask.next_deadline() is None
    harness.input.push_watermark(declaration.new_watermark(3, key=7), channel=1)
    assert harness.output.records[2:] == [(7, 7, 3)]


@pytest.mark.parametrize(("seconds", "delivered"), [(1, []), (2, [(7, 7, 5)])])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_values_expire_after_a_savepoint(tmp_path: Path, parallelism: int, seconds: int, delivered: list[Any]) -> None:
    builder = new_builder("done").type_long().combine_function_max().expire_after(timedelta(seconds=2))
    declaration, clock = builder.per_key(int).build(), ManualClock()
    # The value is sent again, in another micro-batch.
    items: list[Visit | Stop] = [Visit(7, -5), Stop(), Visit(9, 0), Visit(7, -5)]

    def run(parallelism: int, savepoint: Path | None = None) -> tuple[Any, list[Any]]:
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=clock, batches=[1]))
        sink = CollectSink[Any]()
        emitted: Any = env.from_source(TestSource[Visit](items), "in").with_uid("in").process(Emit(declaration))
        watched = emitted.with_uid("emit").key_by(user_of).process(Watch()).with_uid("watch")
        watched.with_parallelism(parallelism).to_sink(sink).with_uid("out")
        job = env.execute_async("expiring", savepoint=savepoint)
        job.await_termination()
        return job, sink.results

    job, before = run(2)
    assert before == [(7, 7, 5)]
    job.savepoint(tmp_path / "savepoint")
    clock.advance(timedelta(seconds=seconds))
    assert run(parallelism, tmp_path / "savepoint")[1] == [Visit(9, 0), *delivered]


def test_values_of_a_watermark_that_is_no_longer_declared_are_removed() -> None:
    clock, builders = ManualClock(), (new_builder(name).type_long() for name in ("done", "other"))
    done, other = (builder.expire_after(timedelta(seconds=2)).per_key(int).build() for builder in builders)
    harness = OneInputHarness(Watch(), key=user_of, declarations=[done, other], clock=clock)
    harness.input.push_watermark(done.new_watermark(5, key=7))
    harness = OneInputHarness(Watch(), key=user_of, declarations=[other], snapshot=harness.snapshot(), clock=clock)
    assert _COMBINERS in entry_of(harness, 7)
    harness.advance_clock(timedelta(seconds=2))
    assert entry_of(harness, 7) == {}


def test_value_of_an_ended_channel_that_never_counted_expires() -> None:
    builder = new_builder("done").type_long().combine_function_max().combine_wait_for_all_channels(True)
    declaration = builder.expire_after(timedelta(seconds=2)).per_key(int).build()
    harness = OneInputHarness(Watch(), key=user_of, channels=3, declarations=[declaration])
    harness.input.push_watermark(declaration.new_watermark(9, key=7))
    harness.input.end(channel=0)
    harness.advance_clock(timedelta(seconds=2))
    for channel in (1, 2):
        harness.input.push_watermark(declaration.new_watermark(channel, key=7), channel=channel)
    assert harness.output.records == [(7, 7, 2)]


def test_values_are_removed_when_the_input_has_ended() -> None:
    class Ending(TwoInputNonBroadcastStreamProcessFunction[Visit, Visit, Any]):
        def process_record_from_first_input(self, record: Visit, output: Any, ctx: Any) -> None: ...

        def process_record_from_second_input(self, record: Visit, output: Any, ctx: Any) -> None: ...

        def on_key_watermark_from_first_input(self, watermark: Any, output: Any, ctx: Any) -> None: ...

    harness: Any = TwoInputNonBroadcastHarness(Ending(), first_key=user_of, second_key=user_of, declarations=[DONE])
    harness.first_input.push_watermark(DONE.new_watermark(1, key=7))
    assert _COMBINERS in entry_of(harness, 7)
    harness.first_input.end()
    assert entry_of(harness, 7) == {}


def test_functions_without_the_callback_keep_nothing() -> None:
    harness = OneInputHarness(Passing(), key=user_of, declarations=[DONE])
    harness.input.push_watermark(DONE.new_watermark(1, key=7))
    assert harness.keys == []


def test_new_number_of_channels_begins_with_the_combination_of_the_old_ones() -> None:
    harness = OneInputHarness(Watch(), key=user_of, channels=2, declarations=[DONE])
    harness.input.push_watermark(DONE.new_watermark(5, key=7), channel=1)
    harness = OneInputHarness(Watch(), key=user_of, channels=3, declarations=[DONE], snapshot=harness.snapshot())
    harness.input.push_watermark(DONE.new_watermark(4, key=7), channel=0)
    assert harness.output.records == []
    harness.input.push_watermark(DONE.new_watermark(6, key=7), channel=2)
    assert harness.output.records == [(7, 7, 6)]


def test_savepoint_carries_what_channels_have_sent_to_another_parallelism(tmp_path: Path) -> None:
    """The first half of the records has a watermark of one emitter for each user, the second half that of the other."""
    declaration = new_builder("done").type_long().combine_wait_for_all_channels(True).per_key(int).build()
    first, second = [Visit(user, -1) for user in range(10)], [Visit(user ^ 1, -1) for user in range(10)]

    def build(stream: Any, parallelism: int) -> Any:
        emitted = stream.shuffle().process(Emit(declaration)).with_uid("emit").with_parallelism(2)
        return emitted.key_by(user_of).process(Watch()).with_uid("watch").with_parallelism(parallelism)

    program = Program([*first, *second], build)
    program.run(stop=len(first)).savepoint(tmp_path / "savepoint")
    assert program.results == []
    assert Savepoint.open(tmp_path / "savepoint").operators["watch"] == ()
    program.run(start=tmp_path / "savepoint", parallelism=3)
    assert sorted(program.results) == [(user, user, 1) for user in range(10)]


ALIGNED = new_builder("aligned").type_long().combine_wait_for_all_channels(True).aligned().build()


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (3, 1), (1, 2)])
def test_held_ones_follow_their_keys_to_another_parallelism(before: int, after: int) -> None:
    """Each is behind an aligned watermark, between the records of its user."""

    def subtasks(parallelism: int, **options: Any) -> list[OneInputHarness[Visit, Any]]:
        return [
            OneInputHarness(
                Watch(),
                key=user_of,
                channels=2,
                parallelism=parallelism,
                subtask=subtask,
                max_parallelism=8,
                declarations=[DONE, ALIGNED],
                **options,
            )
            for subtask in range(parallelism)
        ]

    def align(harnesses: list[OneInputHarness[Visit, Any]], channel: int) -> None:
        for harness in harnesses:
            harness.input.push_watermark(ALIGNED.new_watermark(1), channel=channel)

    old = subtasks(before)
    align(old, channel=0)
    for user in range(12):
        (owner,) = (harness for harness in old if harness.owns(user))
        for number in (1, 2):
            owner.input.push(Visit(user, number))
            owner.input.push_watermark(DONE.new_watermark(number, key=user))
    align(old, channel=0)  # a second one, behind them
    assert all(not harness.output.records for harness in old)
    new = subtasks(after, rescaled=[harness.snapshot() for harness in old])
    align(new, channel=1)
    for user in range(12):
        (owner,) = (harness for harness in new if harness.owns(user))
        told = [record for record in owner.output.records if record[0] == user]
        assert told == [Visit(user, 1), (user, user, 1), Visit(user, 2), (user, user, 2)]
    assert sum(len(harness.output.records) for harness in new) == 12 * 4


def test_watermark_of_a_foreign_key_is_refused_where_the_stream_stays_keyed() -> None:
    class Foreign(Passing):
        def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
            return [DONE]

        def process_record(self, record: Visit, output: Collector[Visit], ctx: PartitionedContext[Visit]) -> None:
            manager = ctx.non_partitioned_context.watermark_manager
            for user in range(20):
                manager.emit_watermark(DONE.new_watermark(1, key=user))

    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    env.set_parallelism(2)
    kept = env.from_collection([Visit(1, 1)]).key_by(user_of).process(Foreign(), new_key_selector=user_of)
    kept.with_uid("foreign").process(Watch()).with_uid("watch").to_sink(CollectSink())
    with pytest.raises((ContractError, JobError), match="a function can only emit per-key watermarks of its own keys"):
        env.execute()


OTHER = new_builder("other").type_str().per_key(int).build()


class WithHandlers(Watch):
    """Handles one watermark on its own."""

    @on(DONE)
    def done(self, watermark: KeyedWatermark[int, int], output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(("handler", ctx.state_manager.current_key, watermark.value))


def test_handlers_of_single_watermarks() -> None:
    harness = OneInputHarness(WithHandlers(), key=user_of, declarations=[DONE, OTHER])
    harness.input.push_watermark(DONE.new_watermark(1, key=7))
    harness.input.push_watermark(OTHER.new_watermark("x", key=7))
    assert harness.output.records == [("handler", 7, 1), (7, 7, "x")]


def test_along_one_output() -> None:
    side = OutputTag("side", Visit)

    class Aside(Emit):
        def declare_outputs(self) -> Collection[OutputTag[Visit]]:
            return [side]

        def process_record(self, record: Visit, output: Collector[Visit], ctx: PartitionedContext[Visit]) -> None:
            manager = ctx.non_partitioned_context.watermark_manager
            manager.emit_watermark(DONE.new_watermark(1, key=record.user), output=side)

    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    main, aside = CollectSink[Any](), CollectSink[Any]()
    emitted = env.from_collection(visits(2, 1)).process(Aside())
    emitted.key_by(user_of).process(Watch()).with_uid("main").to_sink(main)
    emitted.side_output(side).key_by(user_of).process(Watch()).with_uid("aside").to_sink(aside)
    env.execute()
    assert (main.results, sorted(aside.results)) == ([], [(0, 0, 1), (1, 1, 1)])


def test_undeclared_emitter_is_named_at_an_operator_with_several_channels() -> None:
    """The plan only knows where the watermark is declared."""

    class Silent(Emit):
        def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
            return []

    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    env.set_parallelism(2)
    env.from_collection(visits(1, 1)).process(Emit()).key_by(user_of).process(Watch()).with_uid("a").to_sink(
        CollectSink()
    )
    emitted = env.from_collection(visits(2, -1)).process(Silent())
    emitted.shuffle().process(Passing()).with_uid("between").to_sink(CollectSink())
    with pytest.raises(JobError, match=r"between.*, but has several channels and no keys. Declare"):
        env.execute()


class Slow(AsyncOneInputStreamProcessFunction[Visit, Visit]):
    """Emits each visit some time later."""

    async def process_record(self, record: Visit, output: Collector[Visit], ctx: PartitionedContext[Visit]) -> None:
        await asyncio.sleep(0.01)
        output.collect(record)


def test_it_does_not_overtake_records_in_flight() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1, clock=ManualClock(0)))
    sink = CollectSink[Any]()
    emitted = env.from_collection([Visit(7, 1), Visit(7, -1)]).process(Emit()).process(Slow())
    emitted.key_by(user_of).process(Watch()).with_uid("watch").to_sink(sink)
    env.execute()
    assert sink.results == [Visit(7, 1), (7, 7, 1)]
