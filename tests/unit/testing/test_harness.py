"""The harnesses with which users test their functions: input, output, and inspection."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import pytest

from dsv2 import Collector, NonPartitionedContext, PartitionedContext, TwoOutputPartitionedContext
from dsv2.errors import ConfigurationError, ContractError, UndeclaredWatermarkError, UserFunctionError
from dsv2.extension.event_time import EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.join import Left, Right, join
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import (
    EndOfInput,
    HarnessFactory,
    IdleStatus,
    ManualClock,
    OneInputHarness,
    StampedRecord,
    TwoInputBroadcastHarness,
    TwoOutputHarness,
)
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from tests.durations import ms

TOTAL = StateDeclarations.value_state("total", int, default=0)
HIGHEST = new_builder("highest").type_long().combine_function_max().build()
OPEN = new_builder("open").type_bool().build()


class Sale(NamedTuple):
    product: str
    amount: int


def product_of(sale: Sale) -> str:
    return sale.product


class Totals(OneInputStreamProcessFunction[Sale, tuple[str, int]]):
    """The sum of each product, and a reminder of each one 100 ms after its last sale."""

    def __init__(self) -> None:
        self.sales = 0

    def uses_states(self) -> Collection[StateDeclaration]:
        return [TOTAL]

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [HIGHEST]

    def open(self, ctx: NonPartitionedContext[tuple[str, int]]) -> None:
        ctx.metric_group.counter("opened").inc()

    def process_record(
        self, record: Sale, output: Collector[tuple[str, int]], ctx: PartitionedContext[tuple[str, int]]
    ) -> None:
        if record.amount < 0:
            raise ValueError("less than nothing")
        self.sales += 1
        total = ctx.state_manager.get_state(TOTAL)
        total.update(total.value() + record.amount)
        output.collect((record.product, total.value()))
        timers = ctx.processing_time_manager
        timers.register_timer(timers.current_time() + 100)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(HIGHEST.new_watermark(total.value()))

    def on_processing_timer(
        self, timestamp: int, output: Collector[tuple[str, int]], ctx: PartitionedContext[tuple[str, int]]
    ) -> None:
        output.collect((f"{ctx.state_manager.current_key} at {timestamp}", ctx.state_manager.get_state(TOTAL).value()))

    def end_input(self, ctx: NonPartitionedContext[tuple[str, int]]) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(("sales", self.sales)))


class Recorder(OneInputStreamProcessFunction[Any, Any]):
    """Forwards records and emits the watermarks that it receives."""

    def process_record(self, record: Any, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(record)

    def on_watermark(
        self, watermark: Watermark, output: Collector[Any], ctx: NonPartitionedContext[Any]
    ) -> WatermarkHandlingResult:
        output.collect(watermark)
        return WatermarkHandlingResult.PEEK


def total_of(ctx: PartitionedContext[Any]) -> int:
    return ctx.state_manager.get_state(TOTAL).value()


def test_records_watermarks_timers_and_state() -> None:
    harness = OneInputHarness(Totals(), key=product_of)
    harness.input.push(Sale("tea", 2), Sale("milk", 1), Sale("tea", 3))
    assert harness.output.records == [("tea", 2), ("milk", 1), ("tea", 5)]
    assert harness.output.watermarks == [HIGHEST.new_watermark(total) for total in (2, 1, 5)]
    assert harness.output.elements[:2] == [StampedRecord(("tea", 2)), HIGHEST.new_watermark(2)]
    assert sorted(harness.keys) == ["milk", "tea"]
    assert harness.visit(total_of, "tea") == 5
    assert harness.processing_timers("milk") == [100]
    assert harness.event_timers("milk") == []
    assert harness.processing_timers("beer") == []
    assert harness.progress.counters == {"opened": 1}
    assert harness.progress.records_in == 3

    harness.output.clear()
    harness.advance_clock(ms(99))
    assert harness.output.records == []
    harness.advance_clock(ms(1))
    assert sorted(harness.output.records) == [("milk at 100", 1), ("tea at 100", 5)]
    assert harness.processing_timers("milk") == []


class Reminded(OneInputEventTimeStreamProcessFunction[int, str]):
    """An event timer at the record. It registers a processing timer that is due."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None:
        self.event_time.register_timer(record)

    def on_event_timer(self, timestamp: int, output: Collector[str], ctx: PartitionedContext[str]) -> None:
        output.collect("event")
        ctx.processing_time_manager.register_timer(timestamp)

    def on_processing_timer(self, timestamp: int, output: Collector[str], ctx: PartitionedContext[str]) -> None:
        output.collect("processing")


def test_timers_fire_at_the_beginning_and_the_end_of_a_micro_batch() -> None:
    harness = OneInputHarness(Reminded(), key=abs)
    harness.input.push_use_processing_time()
    harness.input.push(5)
    harness.advance_clock(ms(5))
    assert harness.output.records == ["event", "processing"]


def test_original_function_is_not_modified() -> None:
    function = Totals()
    harness = OneInputHarness(function, key=product_of)
    harness.input.push(Sale("tea", 2))
    harness.end()
    assert function.sales == 0
    assert harness.output.records[-1] == ("sales", 1)


def test_end_of_input() -> None:
    harness = OneInputHarness(Totals(), key=product_of, channels=2)
    harness.input.push(Sale("tea", 2), channel=1)
    harness.output.clear()
    harness.input.end(channel=1)
    assert (harness.output.elements, harness.output.ended, harness.ended) == ([], False, False)
    harness.end()
    assert harness.output.records == [("tea at 100", 2), ("sales", 1)]
    assert (harness.output.ended, harness.ended) == (True, True)
    harness.end()
    assert harness.output.elements.count(EndOfInput()) == 1


def test_visitor_may_set_the_state_of_a_partition() -> None:
    harness = OneInputHarness(Totals(), key=product_of)
    harness.input.push(Sale("tea", 2))
    harness.visit(lambda ctx: ctx.state_manager.get_state(TOTAL).update(40), "tea")
    harness.input.push(Sale("tea", 2))
    assert harness.output.records[-1] == ("tea", 42)
    with pytest.raises(ContractError, match=r"There is no partition 'beer'\. The keys so far are \['tea'\]"):
        harness.visit(total_of, "beer")
    with pytest.raises(ContractError, match=r"pass the key to visit\. The keys so far are \['tea'\]"):
        harness.visit(total_of)


def test_state_and_timers_of_a_key_before_its_first_record() -> None:
    harness = OneInputHarness(Totals(), key=product_of)

    def seed(ctx: PartitionedContext[Any]) -> list[int]:
        ctx.state_manager.get_state(TOTAL).update(40)
        timers = ctx.processing_time_manager
        timers.register_timer(50)
        timers.register_timer(20)
        timers.delete_timer(30)
        return timers.timers()

    assert harness.visit(seed, "tea", create=True) == [20, 50]
    harness.restart()
    assert (harness.keys, harness.processing_timers("tea")) == (["tea"], [20, 50])
    harness.input.push(Sale("tea", 2))
    assert harness.output.records[-1] == ("tea", 42)
    assert harness.visit(lambda ctx: ctx.processing_time_manager.timers(), "tea") == harness.processing_timers("tea")
    both = [OneInputHarness(Totals(), key=product_of, parallelism=2, subtask=number) for number in range(2)]
    (other,) = (one for one in both if not one.owns("tea"))
    with pytest.raises(ContractError, match="'tea' belongs to another subtask than"):
        other.visit(seed, "tea", create=True)


def test_failure_has_a_location_and_closes_the_function() -> None:
    closed = []

    class Closing(Totals):
        def close(self) -> None:
            closed.append(True)

    harness = OneInputHarness(Closing(), key=product_of)
    with pytest.raises(UserFunctionError) as caught:
        harness.input.push(Sale("tea", -1))
    error = caught.value
    assert (error.callback, error.key, error.cause_type) == ("process_record", "'tea'", "ValueError")
    assert error.location.startswith(__file__)
    harness.close()
    assert closed == [True]


def test_subtasks_of_several() -> None:
    harnesses = [OneInputHarness(Totals(), key=product_of, parallelism=2, subtask=index) for index in (0, 1)]
    homes = {}
    for product in ("tea", "milk", "beer", "cake", "salt"):
        for index, harness in enumerate(harnesses):
            try:
                harness.input.push(Sale(product, 1))
                homes[product] = index
            except ContractError as error:
                assert str(error) == f"Key {product!r} belongs to subtask {1 - index}, but this is subtask {index}."  # noqa: PT017
    assert len(homes) == 5
    assert set(homes.values()) == {0, 1}
    assert [sorted(harness.keys) for harness in harnesses] == [
        sorted(product for product, home in homes.items() if home == index) for index in (0, 1)
    ]


def test_counter_in_a_redistributed_field() -> None:
    class Counted(OneInputStreamProcessFunction[int, int]):
        def open(self, ctx: NonPartitionedContext[int]) -> None:
            self.seen = ctx.metric_group.counter("seen")

        def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
            self.seen.inc()
            output.collect(self.seen.count)

        def redistribute_fields(self, parts: list[Any], parallelism: int) -> list[Any]:
            return [dict(parts[0]) for _ in range(parallelism)]

    before = [OneInputHarness(Counted(), parallelism=2, subtask=index) for index in (0, 1)]
    before[0].input.push(1, 2)
    before[1].input.push(3)
    after = OneInputHarness(Counted(), rescaled=[harness.snapshot() for harness in before])
    after.input.push(4)
    assert after.output.records == [4]
    assert after.progress.counters["seen"] == 4


def test_task_info() -> None:
    class TaskInfoFunction(OneInputStreamProcessFunction[int, Any]):
        def process_record(self, record: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
            task = ctx.task_info
            output.collect((task.parallelism, task.max_parallelism, task.index_of_this_subtask))

    harness = OneInputHarness(TaskInfoFunction(), parallelism=4, subtask=3, max_parallelism=9)
    harness.input.push(1)
    assert harness.output.records == [(4, 9, 3)]


def test_channels_signals_and_timestamps() -> None:
    harness = OneInputHarness(Recorder(), channels=2, declarations=[HIGHEST, OPEN], checks=False)
    harness.input.push("a", "b", timestamp=7)
    harness.input.push("c", channel=1)
    assert harness.output.stamped_records == [StampedRecord("a", 7), StampedRecord("b", 7), StampedRecord("c")]
    assert harness.output.timestamps == [7, 7, None]
    harness.output.clear()
    harness.input.push_watermark(HIGHEST.new_watermark(3), channel=1)
    harness.input.push_watermark(OPEN.new_watermark(False))
    harness.input.push_idle()
    harness.input.push_idle(channel=1)
    harness.input.push_idle(False)
    expected = [HIGHEST.new_watermark(3), OPEN.new_watermark(False)]
    assert harness.output.records == harness.output.watermarks == expected
    assert harness.output.idle_statuses == [True, False]
    assert harness.output.elements[-2:] == [IdleStatus(True), IdleStatus(False)]
    assert harness.output.event_times == []


def test_input_has_all_channels_at_any_parallelism() -> None:
    harness = OneInputHarness(Recorder(), channels=2, parallelism=2, subtask=1)
    harness.input.push("a", channel=1)
    harness.input.end(channel=1)
    harness.input.push("b", channel=0)
    assert (harness.output.records, harness.ended) == (["a", "b"], False)


def test_output_of_one_harness_is_input_of_another() -> None:
    first = OneInputHarness(Recorder(), declarations=[HIGHEST], checks=False)
    first.input.push_all([StampedRecord("a", 1), HIGHEST.new_watermark(3), StampedRecord("b"), EndOfInput()])
    second = OneInputHarness(Recorder(), declarations=[HIGHEST], checks=False)
    second.input.push_all(first.output.elements)
    told = StampedRecord(HIGHEST.new_watermark(3))
    assert first.output.elements == [
        StampedRecord("a", 1),
        told,
        HIGHEST.new_watermark(3),
        StampedRecord("b"),
        EndOfInput(),
    ]
    assert second.output.elements == [StampedRecord("a", 1), told, *first.output.elements[1:]]


def test_unknown_option_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"A harness has no option 'chanels'\. The options are channels"):
        OneInputHarness(Recorder(), chanels=2)  # type: ignore[call-arg]


def test_mistakes() -> None:
    harness = OneInputHarness(Recorder(), channels=2, declarations=[HIGHEST])
    with pytest.raises(ContractError, match=r"The input has no channel 2\. It has 2"):
        harness.input.push("a", channel=2)
    with pytest.raises(
        UndeclaredWatermarkError, match=r"'open' is not declared\. Create the harness with declarations"
    ):
        harness.input.push_watermark(OPEN.new_watermark(True))
    with pytest.raises(UndeclaredWatermarkError, match="BUILTIN_API_EVENT_TIME"):
        harness.input.push_event_time(1)
    harness.input.end(channel=0)
    with pytest.raises(ContractError, match="Channel 0 has ended"):
        harness.input.push("a")
    with pytest.raises(ConfigurationError, match="duration must be 0 or more, not -1 ms"):
        harness.advance_clock(ms(-1))


class Split(TwoOutputStreamProcessFunction[int, int, str]):
    def process_record(
        self,
        record: int,
        first_output: Collector[int],
        second_output: Collector[str],
        ctx: TwoOutputPartitionedContext[int, str],
    ) -> None:
        first_output.collect(record)
        second_output.collect_and_overwrite_timestamp(str(record), record)


@pytest.mark.parametrize("keyed", [True, False])
def test_two_outputs(keyed: bool) -> None:
    harness = TwoOutputHarness(Split(), key=abs if keyed else None)
    harness.input.push(-1, 2)
    harness.end()
    assert harness.first_output.elements == [StampedRecord(-1), StampedRecord(2), EndOfInput()]
    assert harness.second_output.elements == [StampedRecord("-1", -1), StampedRecord("2", 2), EndOfInput()]
    assert harness.keys == ([1, 2] if keyed else [])
    if keyed:
        assert harness.visit(lambda ctx: ctx.state_manager.current_key, 1) == 1
    assert harness.visit(lambda ctx: ctx.task_info.parallelism, *([2] if keyed else [])) == 1


def test_outputs_that_stay_keyed_are_checked() -> None:
    harness = TwoOutputHarness(Split(), key=abs, first_output_key=abs, second_output_key=int)
    harness.input.push(1)
    with pytest.raises(UserFunctionError, match="InvalidKeyError"):
        harness.input.push(-1)
    keeping = OneInputHarness(Recorder(), key=len, output_key=len)
    keeping.input.push("a")
    assert keeping.output.records == ["a"]


RULES = StateDeclarations.map_state_builder("rules", str, int).build_broadcast()


class Rules(TwoInputBroadcastStreamProcessFunction[int, str, str]):
    def uses_states(self) -> Collection[StateDeclaration]:
        return [RULES]

    def process_record_from_non_broadcast_input(
        self, record: int, output: Collector[str], ctx: PartitionedContext[str]
    ) -> None:
        output.collect(f"{record}")

    def process_record_from_broadcast_input(self, record: str, ctx: NonPartitionedContext[str]) -> None:
        rules = ctx.state_manager.get_state(RULES)
        rules.put(record, rules.get(record, 0) + 1)
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(f"rule {record}"))


@pytest.mark.parametrize("keyed", [True, False])
def test_state_of_the_subtask_is_read_and_set_without_a_key(keyed: bool) -> None:
    harness = TwoInputBroadcastHarness(Rules(), key=abs if keyed else None)
    harness.broadcast_input.push("x")
    assert harness.state_manager.get_state(RULES).items() == [("x", 1)]
    harness.state_manager.get_state(RULES).put("x", 9)
    harness.restart()
    harness.broadcast_input.push("x")
    assert harness.state_manager.get_state(RULES).items() == [("x", 10)]


def test_clock_that_advances_by_itself() -> None:
    clock = ManualClock(10, step=ms(5))
    assert [clock.now_ms(), clock.now_ms()] == [10, 15]
    clock.advance(ms(100))
    assert clock.now_ms() == 120


def test_factory_takes_a_declared_join() -> None:
    sales = join(Sale, left_records=Sale, right_records=Sale, product=Left("product"), amount=Right("amount"))
    with HarnessFactory(ManualClock()) as harness:
        joined = harness(sales, first_key=product_of, second_key=product_of)
        joined.first_input.push(Sale("tea", 1))
        joined.second_input.push(Sale("tea", 2))
        assert joined.output.records == [Sale("tea", 2)]
