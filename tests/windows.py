"""Shared helpers for tests of windows: a generator that emits as Flink's does, and window functions that emit their
calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar

from dsv2 import Collector, PartitionedContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import (
    OneInputWindowStreamProcessFunction,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    TwoOutputWindowStreamProcessFunction,
)
from dsv2.functions import (
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import STATUS
from dsv2.sinks import CollectSink
from dsv2.state import AggregateFunction, StateDeclaration, StateDeclarations
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.event_time import LONG_MAX
from tests.support import ACTIVE, ENDED, IDLE, Driver, Signal, local_environment, operator_named, watermark

T = TypeVar("T")

Event: TypeAlias = tuple[Any, ...]
"""The kind of event, the key, the window if there is one, and records."""

EVENT_TIME = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION


class FlinkGenerator(OneInputStreamProcessFunction[T, T], Generic[T]):
    """Emits for each record a watermark of the maximum timestamp so far, less ``out_of_order`` ms.

    Flink's generator does the same, and its recordings and tests depend on it. dsv2's generator emits one less, so that
    another record with the maximum timestamp is not late.
    """

    def __init__(self, timestamp_of: Callable[[T], int], out_of_order: int = 0) -> None:
        self.timestamp_of = timestamp_of
        self.out_of_order = out_of_order
        self.last: int | None = None

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return (EVENT_TIME,)

    def process_record(self, record: T, output: Collector[T], ctx: PartitionedContext[T]) -> None:
        timestamp = self.timestamp_of(record)
        output.collect_and_overwrite_timestamp(record, timestamp)
        watermark = timestamp - self.out_of_order
        if self.last is None or watermark > self.last:
            self.last = watermark
            ctx.non_partitioned_context.watermark_manager.emit_watermark(EVENT_TIME.new_watermark(watermark))


def event(kind: str, ctx: Any, *records: Any, window: Any = None) -> Event:
    """The event of the current key, in a window or not."""
    place = () if window is None else (window.start_time, window.end_time)
    return kind, ctx.state_manager.current_key, *place, *records


class WindowRecorder(OneInputWindowStreamProcessFunction[Any, Event]):
    """Emits every trigger, every removal and late records. With ``of_records`` it also emits records as they arrive."""

    def __init__(self, of_records: bool = False) -> None:
        self.of_records = of_records

    def on_record(self, record: Any, output: Any, ctx: Any, window: Any) -> None:
        window.put_record(record)
        if self.of_records:
            output.collect(event("record", ctx, record, window=window))

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(event("trigger", ctx, tuple(window.get_all_records()), window=window))

    def on_clear(self, output: Any, ctx: Any, window: Any) -> None:
        assert window.get_all_records() == []
        output.collect(event("clear", ctx, window=window))

    def on_late_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(event("late", ctx, record))


class TwoInputWindowRecorder(TwoInputNonBroadcastWindowStreamProcessFunction[Any, Any, Event]):
    """Emits every trigger, every removal and late records."""

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        records = tuple(window.get_all_records1()), tuple(window.get_all_records2())
        output.collect(event("trigger", ctx, *records, window=window))

    def on_clear(self, output: Any, ctx: Any, window: Any) -> None:
        assert window.get_all_records1() == window.get_all_records2() == []
        output.collect(event("clear", ctx, window=window))

    def on_late_record1(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(event("late1", ctx, record))

    def on_late_record2(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(event("late2", ctx, record))


class TwoOutputWindowRecorder(TwoOutputWindowStreamProcessFunction[Any, Event, Event]):
    """Emits every trigger, and to the second output every removal and late records."""

    def on_trigger(self, first_output: Any, second_output: Any, ctx: Any, window: Any) -> None:
        first_output.collect(event("trigger", ctx, tuple(window.get_all_records()), window=window))

    def on_clear(self, first_output: Any, second_output: Any, ctx: Any, window: Any) -> None:
        assert window.get_all_records() == []
        second_output.collect(event("clear", ctx, window=window))

    def on_late_record(self, record: Any, first_output: Any, second_output: Any, ctx: Any) -> None:
        second_output.collect(event("late", ctx, record))


class StatefulWindowRecorder(WindowRecorder):
    """Emits the same, but keeps the records in a state of the window."""

    RECORDS = StateDeclarations.list_state("records", object)

    def use_window_states(self) -> Collection[StateDeclaration]:
        return [self.RECORDS]

    def on_record(self, record: Any, output: Any, ctx: Any, window: Any) -> None:
        window.get_window_state(self.RECORDS).add(record)

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(event("trigger", ctx, tuple(window.get_window_state(self.RECORDS).get()), window=window))


def key_of(record: Any) -> Any:
    """Records of these tests are strings: the key, followed by a distinguishing part."""
    return record[0]


@dataclass
class Tally:
    """An accumulator of a named class."""

    records: int = 0
    letters: str = ""


class CountLetters(AggregateFunction[str, Tally, str]):
    """Counts records like "a1", and concatenates the parts after the key."""

    def create_accumulator(self) -> Tally:
        return Tally()

    def add(self, value: str, accumulator: Tally) -> Tally:
        accumulator.records += 1
        accumulator.letters += value[1]
        return accumulator

    def get_result(self, accumulator: Tally) -> str:
        return f"{accumulator.records}: {accumulator.letters}"

    def merge(self, first: Tally, second: Tally) -> Tally:
        return Tally(first.records + second.records, first.letters + second.letters)


class WindowDriver:
    """One subtask of a window function, driven by hand: elements in, records with their timestamps out.

    ``key`` None is for global streams. Each input has that many ``channels``. Those of the second one follow those of
    the first. A second output goes to the uid "second", a side output to its name.
    """

    def __init__(
        self, function: ProcessFunction, key: Callable[[Any], Hashable] | None = key_of, channels: int = 1
    ) -> None:
        env = local_environment()
        streams: list[Any] = []
        for name in ("left", "right"):
            source = env.from_collection(list[Any](), name).with_parallelism(channels)
            timed = source.process(FlinkGenerator[Any](len)).with_parallelism(channels)
            timed.to_sink(CollectSink()).with_uid(f"all of {name}")  # so that the function is not chained
            streams.append(timed.global_() if key is None else timed.key_by(key))
        if isinstance(function, TwoInputNonBroadcastStreamProcessFunction):
            result = streams[0].connect_and_process(streams[1], function)
        else:
            result = streams[0].process(function)
        for tag in function.declare_outputs():
            result.side_output(tag).to_sink(CollectSink()).with_uid(tag.name)
        if isinstance(function, TwoOutputStreamProcessFunction):
            result.second.to_sink(CollectSink()).with_uid("second")
            result = result.first
        result.to_sink(CollectSink()).with_uid("out")
        self._plan = env.build_plan()
        self._driver = Driver(self._plan, next(o.uid for o in self._plan.operators if o.body is function)).open()

    def record(self, record: Any, timestamp: int | None = None, channel: int = 0) -> Self:
        """Push a record."""
        return self.records([record], [timestamp], channel)

    def records(self, records: list[Any], timestamps: list[int | None], channel: int = 0) -> Self:
        """Push records of one frame."""
        stamped = any(timestamp is not None for timestamp in timestamps)
        self._driver.subtask.receive(channel, RecordBatch(records, timestamps if stamped else None), [])
        self._driver.subtask.flush()
        return self

    def event_time(self, time: int, channel: int = 0) -> Self:
        """Push a watermark."""
        self._driver.send(watermark(time, EVENT_TIME.identifier), channel=channel)
        return self

    def idle(self, is_idle: bool, channel: int = 0) -> Self:
        """Push the idle status of a channel."""
        self._driver.send(IDLE if is_idle else ACTIVE, channel=channel)
        return self

    def end(self, channel: int = 0) -> Self:
        """Push the end of a channel."""
        self._driver.send(ENDED, channel=channel)
        return self

    def clock(self, now_ms: int) -> Self:
        """Start a micro-batch at a later time."""
        self._driver.pass_time(now_ms)
        return self

    def restart(self) -> Self:
        """Continue with a new subtask that is restored from this one."""
        self._driver.restart()
        return self

    def restart_from_rows(self) -> Self:
        """Continue with a new subtask that is restored from the rows of this one, in another order."""
        self._driver.restart_from(reversed(self._driver.rows()))
        return self

    def state(self) -> bytes:
        """The checkpointed state."""
        return self._driver.subtask.snapshot()

    def keys(self) -> int:
        """The number of keys with state."""
        self.state()  # snapshots remove empty entries
        return len(self._driver.subtask._head._store)

    def times(self) -> list[int]:
        """The event times so far. Event time may advance more than once at a time."""
        kinds = [element for element in self._driver.sent_to("out") if isinstance(element, Signal)]
        return [LONG_MAX if kind == ENDED else int(kind.value) for kind in kinds if kind.kind != STATUS]

    def out(self, uid: str = "out") -> list[Any]:
        """The output so far."""
        return [record for record, _ in self.stamped(uid)]

    def stamped(self, uid: str = "out") -> list[tuple[Any, int | None]]:
        """The output so far, with timestamps."""
        sink = operator_named(self._plan, uid).id
        frames = [frame for frame in self._driver.frames if frame.operator == sink]
        return [pair for frame in frames for pair in frame.batch.pairs()]
