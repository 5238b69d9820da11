"""Output of watermark generators, and its time (Flink ``ExtractEventTimeProcessFunctionTest``).

Listed differences: a watermark is one less than the maximum timestamp, so another record with that timestamp is not
late. A generator emits its last watermark before it becomes idle. Its state survives a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.errors import ConfigurationError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension, EventTimeWatermarkGeneratorBuilder
from dsv2.extension.window import WindowContext, WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource, DataGeneratorSource, WatermarkStrategy
from dsv2.testing import EndOfInput, IdleStatus, ManualClock, OneInputHarness, StampedRecord
from dsv2.watermark import BoolWatermark, LongWatermark, Watermark, WatermarkDeclaration, WatermarkHandlingResult
from dsv2.watermark.event_time import EVENT_TIME, IDLE_STATUS, LONG_MIN, USE_PROCESSING_TIME
from tests.durations import ms
from tests.spans import Item, Spans
from tests.support import local_environment, one_input, operator_named

MS = timedelta(milliseconds=1)


def generator() -> EventTimeWatermarkGeneratorBuilder[int]:
    """Records are their own timestamps."""
    return EventTimeExtension.new_watermark_generator_builder(int)


def driven(builder: EventTimeWatermarkGeneratorBuilder[int]) -> OneInputHarness[int, int]:
    return OneInputHarness(builder.build_as_process_function())


def deadline(harness: OneInputHarness[int, int]) -> int | None:
    return harness._subtask.next_deadline()


BY_CLOCK = BoolWatermark(True, USE_PROCESSING_TIME)


def test_no_watermark_generator_sends_the_flag() -> None:
    """testDoNotGenerateEventTimeWatermark. FLIP-326: the flag, once, declares that event time is the wall clock."""
    harness = driven(generator().no_watermark())
    harness.input.push(12345678)
    harness.input.push(12345679, timestamp=3)
    harness.advance_clock(ms(1000))
    harness.restart()
    assert harness.output.elements == [BY_CLOCK, StampedRecord(12345678, 12345678), StampedRecord(12345679, 12345679)]


@pytest.mark.parametrize("flag", [False, True])
def test_event_time_from_upstream_is_replaced(flag: bool) -> None:
    """As in Flink's assignTimestampsAndWatermarks. (Flink's DataStream V2 passes it on.) Idleness is passed on."""
    declared: list[WatermarkDeclaration] = [
        EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION,
        EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION,
    ]
    function = generator().per_event_watermark().build_as_process_function()
    harness = OneInputHarness[int, int](function, declarations=declared)
    harness.input.push_event_time(1000)
    if flag:
        harness.input.push_use_processing_time()
    harness.restart()
    harness.input.push(7)
    harness.input.push_idle()
    harness.input.end()
    assert harness.output.elements == [
        StampedRecord(7, 7),
        LongWatermark(6, EVENT_TIME),
        IdleStatus(True),
        EndOfInput(),
    ]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("by_source", [False, True])
def test_second_generator_loses_no_records(parallelism: int, by_source: bool) -> None:
    """The first one is by another field, whose timestamps are a day later."""
    env, sink = local_environment(parallelism), CollectSink[tuple[int, int]]()
    by_shipping = EventTimeExtension.new_watermark_generator_builder(shipped).per_event_watermark()
    if by_source:
        source = Spans({"a": 10})
        read = env.from_source(source, watermarks=by_shipping_of_items()).map(order_of_item)
    else:
        read = env.from_collection([Order(day_later(n), n) for n in range(10)]).process(
            by_shipping.build_as_process_function()
        )
    by_order = EventTimeExtension.new_watermark_generator_builder(ordered).with_max_out_of_order_time(ms(20))
    stream = read.process(by_order.per_event_watermark().build_as_process_function()).key_by(first_key)
    stream.window(WindowStrategy.tumbling(ms(5))).reduce(later, window_and_last).to_sink(sink)
    env.execute()
    assert sorted(sink.results) == [(0, 4), (5, 9)]


class Order(NamedTuple):
    shipped: int
    ordered: int


def day_later(time: int) -> int:
    return 86_400_000 + time


def shipped(order: Order) -> int:
    return order.shipped


def ordered(order: Order) -> int:
    return order.ordered


def first_key(order: Order) -> str:
    return "k"


def later(first: Order, second: Order) -> Order:
    return max(first, second)


def window_and_last(last: Order, window: WindowContext, ctx: Any) -> tuple[int, int]:
    return window.start_time, last.ordered


def order_of_item(item: Item) -> Order:
    return Order(day_later(item.number), item.number)


def by_shipping_of_items() -> WatermarkStrategy[Item]:
    def shipped_item(item: Item) -> int:
        return day_later(item.number)

    return EventTimeExtension.new_watermark_generator_builder(shipped_item).build_as_watermark_strategy()


def test_per_event_watermarks() -> None:
    """testGenerateEventTimeWatermarkPerEvent. Flink emits 12345678 and 12345679."""
    harness = driven(generator().per_event_watermark())
    harness.input.push(12345678, 12345678, 5, 12345679)
    assert harness.output.elements == [
        StampedRecord(12345678, 12345678),
        LongWatermark(12345677, EVENT_TIME),
        StampedRecord(12345678, 12345678),
        StampedRecord(5, 5),
        StampedRecord(12345679, 12345679),
        LongWatermark(12345678, EVENT_TIME),
    ]


@pytest.mark.parametrize("idleness", [timedelta(0), timedelta(hours=1)], ids=["runs", "one-by-one"])
def test_periodic_watermarks(idleness: timedelta) -> None:
    """testGenerateEventTimeWatermarkPeriodic."""
    harness = driven(generator().with_idleness(idleness))
    harness.advance_clock(ms(200))
    assert harness.output.event_times == []
    harness.input.push(12345678)
    harness.advance_clock(ms(200))
    assert harness.output.event_times == [12345677]
    harness.input.push(12345679, 12345670)
    harness.advance_clock(ms(200))
    assert harness.output.event_times == [12345677, 12345678]
    harness.advance_clock(ms(1000))
    assert harness.output.event_times == [12345677, 12345678]
    assert harness.output.timestamps == [12345678, 12345679, 12345670]


def test_out_of_order_time_is_subtracted() -> None:
    """testGenerateEventTimeWatermarkWithOutOfOrderTime."""
    harness = driven(generator().per_event_watermark().with_max_out_of_order_time(100 * MS))
    harness.input.push(12345678, 12345600, 12345679)
    assert harness.output.event_times == [12345577, 12345578]


def test_idleness_is_sent_once_and_ends_with_the_next_record() -> None:
    """testGenerateIdleStatusWatermark."""
    harness = driven(generator().per_event_watermark().with_idleness(200 * MS))
    harness.input.push(12345678)
    assert harness.output.idle_statuses == []
    for _ in range(5):
        harness.advance_clock(ms(200))
    assert harness.output.idle_statuses == [True]
    harness.output.clear()
    harness.input.push(12345679, 12345680)
    assert harness.output.elements == [
        IdleStatus(False),
        StampedRecord(12345679, 12345679),
        LongWatermark(12345678, EVENT_TIME),
        StampedRecord(12345680, 12345680),
        LongWatermark(12345679, EVENT_TIME),
    ]
    harness.advance_clock(ms(200))
    assert harness.output.idle_statuses == [False, True]


def test_idle_generator_stays_idle_with_its_inputs() -> None:
    """There is still no record, and idleness would not be sent again."""
    harness = driven(generator().per_event_watermark().with_idleness(200 * MS))
    harness.input.push(10)
    harness.advance_clock(ms(200))
    harness.advance_clock(ms(200))
    for idle in (True, False, True, False):
        harness.input.push_idle(idle)
        harness.restart()
    assert set(harness.output.idle_statuses) == {True}
    harness.input.push(20)
    assert harness.output.idle_statuses[-1] is False


def test_watermark_counts_although_the_inputs_are_idle() -> None:
    """It is sent between active and idle, because receivers ignore the event time of an idle channel."""
    harness = driven(generator().periodic_watermark(500 * MS))
    harness.input.push(10)
    harness.input.push_idle()
    harness.output.clear()
    harness.input.push(20)  # from a channel that should not send it while idle
    harness.advance_clock(ms(500))
    assert harness.output.elements[-3:] == [IdleStatus(False), LongWatermark(19, EVENT_TIME), IdleStatus(True)]


def test_idle_timeout_starts_with_the_last_record() -> None:
    harness = driven(generator().per_event_watermark().with_idleness(250 * MS))
    for _ in range(3):
        harness.input.push(1)
        harness.advance_clock(ms(249))
    assert harness.output.idle_statuses == []
    harness.advance_clock(ms(1))
    assert harness.output.idle_statuses == [True]


def test_generator_without_records_becomes_idle() -> None:
    harness = driven(generator().with_idleness(250 * MS))
    harness.advance_clock(ms(0))
    harness.advance_clock(ms(250))
    assert harness.output.elements == [IdleStatus(True)]


def test_last_watermark_is_emitted_before_idleness() -> None:
    """Flink omits the watermark until the next record."""
    harness = driven(generator().periodic_watermark(500 * MS).with_idleness(100 * MS))
    harness.input.push(10)
    harness.advance_clock(ms(50))
    harness.input.push(20)
    harness.advance_clock(ms(100))
    assert harness.output.elements == [
        StampedRecord(10, 10),
        LongWatermark(9, EVENT_TIME),
        StampedRecord(20, 20),
        LongWatermark(19, EVENT_TIME),
        IdleStatus(True),
    ]


def test_no_watermark_generator_has_idleness() -> None:
    harness = driven(generator().no_watermark().with_idleness(100 * MS))
    harness.input.push(10)
    harness.advance_clock(ms(100))
    assert harness.output.elements == [BY_CLOCK, StampedRecord(10, 10), IdleStatus(True)]


def test_periodic_watermarks_keep_their_interval() -> None:
    harness = driven(generator().periodic_watermark(100 * MS))
    harness.input.push(1)
    harness.advance_clock(ms(60))
    harness.input.push(2)
    harness.advance_clock(ms(39))
    assert harness.output.event_times == [0]
    assert deadline(harness) == 100
    harness.advance_clock(ms(1))
    assert harness.output.event_times == [0, 1]


def test_generator_requests_a_call_only_if_needed() -> None:
    periodic = driven(generator())
    assert deadline(periodic) is None
    periodic.input.push(1)
    periodic.advance_clock(ms(10))
    assert deadline(periodic) is None, "all is told"
    periodic.input.push(2)
    periodic.advance_clock(ms(10))
    assert deadline(periodic) == 200

    idling = driven(generator().per_event_watermark().with_idleness(300 * MS))
    idling.advance_clock(ms(10))
    assert deadline(idling) == 300
    idling.input.push(1)
    idling.advance_clock(ms(0))
    assert deadline(idling) == 310
    idling.advance_clock(ms(300))
    assert deadline(idling) is None, "it is idle"


@pytest.mark.parametrize(
    ("builder", "needs_clock"),
    [
        (generator(), True),
        (generator().with_idleness(MS), True),
        (generator().per_event_watermark(), False),
        (generator().per_event_watermark().with_idleness(MS), True),
        (generator().no_watermark(), False),
        (generator().no_watermark().with_idleness(MS), True),
    ],
)
def test_job_needs_the_clock_only_for_some_generators(builder: Any, needs_clock: bool) -> None:
    env = local_environment()
    env.from_collection([1]).process(builder.build_as_process_function()).with_uid("g").to_sink(CollectSink())
    plan = env.build_plan()
    assert plan.needs_clock(operator_named(plan, "g")) is needs_clock


@pytest.mark.parametrize("idleness", [timedelta(0), 100 * MS])
def test_only_possible_watermarks_are_declared(idleness: timedelta) -> None:
    function = generator().with_idleness(idleness).build_as_process_function()
    declared = {declaration.identifier for declaration in function.declare_watermarks()}
    assert declared == ({EVENT_TIME, IDLE_STATUS} if idleness else {EVENT_TIME})
    function = generator().no_watermark().with_idleness(idleness).build_as_process_function()
    declared = {declaration.identifier for declaration in function.declare_watermarks()}
    assert declared == ({USE_PROCESSING_TIME, IDLE_STATUS} if idleness else {USE_PROCESSING_TIME})


@pytest.mark.parametrize("builder", [generator(), generator().per_event_watermark()], ids=["periodic", "per-event"])
def test_restart_keeps_the_state_of_a_generator(builder: EventTimeWatermarkGeneratorBuilder[int]) -> None:
    """Flink's generator starts fresh: its next watermark may go back."""
    harness = driven(builder.with_idleness(300 * MS))
    harness.input.push(10)
    harness.advance_clock(ms(200))
    harness.restart()
    harness.input.push(5)
    harness.advance_clock(ms(200))
    harness.restart()
    assert harness.output.event_times == [9]
    harness.advance_clock(ms(300))
    harness.restart()
    harness.advance_clock(ms(300))
    assert harness.output.idle_statuses == [True]
    harness.input.push(12)
    harness.advance_clock(ms(200))
    assert harness.output.event_times == [9, 11]
    assert harness.output.idle_statuses == [True, False]


def test_end_of_input_emits_no_watermark() -> None:
    """Downstream event time ends with the input, whatever the generator has emitted."""
    harness = driven(generator())
    harness.input.push(10)
    harness.end()
    assert harness.output.event_times == []
    assert harness.output.ended


def test_generator_without_input_emits_nothing() -> None:
    """The upstream filter passes empty batches."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[3], clock=ManualClock(step=ms(1000))))
    sink = CollectSink[int]()
    none = env.from_collection(range(10)).filter(lambda number: False)
    none.process(generator().build_as_process_function()).with_uid("g").shuffle().map(int).with_uid("h").to_sink(sink)
    assert env.execute().progress.operators["h"].watermarks == {}
    assert sink.results == []


@pytest.mark.parametrize("builder", [generator, lambda: generator().per_event_watermark()])
@pytest.mark.parametrize(
    ("timestamp", "cause", "message"),
    [
        (1.5, "ContractError", "must be an integer, in ms since the epoch, but 1.5 is of type float"),
        (None, "ContractError", "NoneType"),
        ("12", "ContractError", "str"),
    ],
)
def test_timestamp_must_be_an_int(builder: Any, timestamp: Any, cause: str, message: str) -> None:
    function = EventTimeExtension.new_watermark_generator_builder(lambda record: record)
    if builder is not generator:
        function.per_event_watermark()
    harness = OneInputHarness[Any, Any](function.build_as_process_function())
    with pytest.raises(UserFunctionError, match=message) as caught:
        harness.input.push(1, timestamp, 0)
    assert (caught.value.callback, caught.value.cause_type) == ("process_record", cause)
    assert caught.value.record == repr(timestamp)
    assert caught.value.location.startswith(__file__)


def test_timestamps_may_be_before_the_epoch() -> None:
    harness = driven(generator().per_event_watermark())
    harness.input.push(-5, LONG_MIN + 1, -4)
    assert harness.output.event_times == [-6, -5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda builder: builder.periodic_watermark(timedelta(0)), "interval must be at least 1 ms, not 0 ms"),
        (lambda builder: builder.periodic_watermark(-MS), "interval must be at least 1 ms, not -1 ms"),
        (lambda builder: builder.with_idleness(-MS), "idleness must be 0 or more, not -1 ms"),
        (lambda builder: builder.with_max_out_of_order_time(-MS), "out_of_order must be 0 or more, not -1 ms"),
        (lambda builder: builder.with_max_out_of_order_time(20), "out_of_order must be a datetime.timedelta, such as"),
    ],
)
def test_invalid_durations_are_refused(
    call: Callable[[EventTimeWatermarkGeneratorBuilder[int]], object], message: str
) -> None:
    """Flink refuses the interval when the job starts: "Watermark interval 0 should large to 0."."""
    with pytest.raises(ConfigurationError, match=message):
        call(generator())


def test_generator_requires_a_callable() -> None:
    with pytest.raises(ConfigurationError, match="extract_timestamp must be a callable"):
        EventTimeExtension.new_watermark_generator_builder("timestamp")  # type: ignore[call-overload]


def test_last_call_of_a_kind_wins() -> None:
    harness = driven(generator().per_event_watermark().periodic_watermark(MS).no_watermark().per_event_watermark())
    harness.input.push(3)
    assert harness.output.event_times == [2]


def listening_to(heard: list[Watermark]) -> OneInputStreamProcessFunction[int, int]:
    """Appends every watermark that it receives to ``heard``."""

    def on_watermark(signal: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        heard.append(signal)
        return WatermarkHandlingResult.PEEK

    return one_input(on_watermark=on_watermark)


def run_with(function: OneInputStreamProcessFunction[int, int], seed: int) -> list[Any]:
    """Event times received by an operator downstream of two parallel generators."""
    heard: list[Watermark] = []
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=seed, clock=ManualClock(step=ms(100)), batches=[3]))
    numbers = env.from_source(DataGeneratorSource(int, count=20)).with_parallelism(2)
    numbers.process(function).with_parallelism(2).global_().process(listening_to(heard)).to_sink(CollectSink())
    env.execute()
    return [signal.value for signal in heard]


def test_no_watermark_generator_sends_the_flag_anywhere() -> None:
    """With each kind of source: some generators run at the source."""
    numbers = range(20)
    for source in (DataGeneratorSource(int, count=20), CollectionSource(numbers)):
        heard: list[Watermark] = []
        env = ExecutionEnvironment.get_instance(LocalRuntime(seed=3, batches=[3]))
        stamped = (
            env.from_source(source).with_parallelism(2).process(generator().no_watermark().build_as_process_function())
        )
        stamped.with_parallelism(2).global_().process(listening_to(heard)).to_sink(CollectSink())
        env.execute()
        assert BY_CLOCK in heard


@pytest.mark.parametrize("builder", [generator(), generator().per_event_watermark()], ids=["periodic", "per-event"])
def test_parallel_generators_with_a_shuffle(builder: EventTimeWatermarkGeneratorBuilder[int]) -> None:
    for seed in range(5):
        heard = run_with(builder.build_as_process_function(), seed)
        assert heard == sorted(set(heard))
        assert heard[-1] == 2**63 - 1, "the end of all time"
        assert heard[0] < 20
