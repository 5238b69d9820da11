"""Programs for event time, timers and timestamps (Flink ``EventTimeExtensionITCase`` and what it leaves out).

The generator's watermarks are one less than Flink's, on purpose: where Flink's tests expect 1, 2, 3, these expect
0, 1, 2. At the end event time is the greatest there is, which Flink's functions are not told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from dsv2 import NonPartitionedContext
from dsv2.extension.event_time import (
    EventTimeExtension,
    EventTimeManager,
    OneInputEventTimeStreamProcessFunction,
    TwoInputBroadcastEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
    TwoOutputEventTimeStreamProcessFunction,
)
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
    no_output_until_end_of_input,
)
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult
from tests.conformance.functions import FEW, NUMBERS, Pass, mod3, parity
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.programs_lifecycle import Diary, diaries

__all__ = ("PROGRAMS",)

END_OF_TIME = 2**63 - 1
EVENT_TIME = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
IDLE_STATUS = EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION


class Click(NamedTuple):
    """Flink's own input."""

    time: int
    name: str


CLICKS = (Click(1, "a"), Click(2, "b"), Click(3, "c"))


class Event(NamedTuple):
    """What a function was told. ``value``: a click, or a time."""

    subtask: int
    what: Literal["record", "time", "timer"]
    value: Any


def time_of(click: Click) -> int:
    """When it was, in ms."""
    return click.time


def per_event(extract: Any) -> OneInputStreamProcessFunction[Any, Any]:
    """A generator with a watermark behind every record that moves event time on."""
    builder = EventTimeExtension.new_watermark_generator_builder(extract)
    return builder.per_event_watermark().build_as_process_function()


class Telling:
    """Tells what it is told, to every output, and sets a timer for one more than each record's time."""

    event_time: EventTimeManager

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def record(self, record: Click, *args: Any) -> None:
        assert self.event_time.current_time() < record.time, "no record is late"
        assert args[-1].timestamp == record.time
        self.event_time.register_timer(record.time + 1)
        self.tell("record", record, *args)

    def on_event_time_watermark(self, timestamp: int, *args: Any) -> None:
        assert self.event_time.current_time() == timestamp
        self.tell("time", timestamp, *args)

    def on_event_timer(self, timestamp: int, *args: Any) -> None:
        assert args[-1].timestamp == timestamp <= self.event_time.current_time()
        assert args[-1].state_manager.current_key == timestamp - 1
        self.tell("timer", timestamp, *args)

    def tell(self, what: Literal["record", "time", "timer"], value: Any, *args: Any) -> None:
        *outputs, ctx = args
        for output in outputs:
            output.collect(Event(ctx.task_info.index_of_this_subtask, what, value))

    def refuse(self, watermark: Watermark, *args: Any) -> WatermarkHandlingResult:
        raise AssertionError("event time is not told as a watermark")


# Under these types they are every kind's.
RECORD: Any = Telling.record
REFUSE: Any = Telling.refuse


class TellOne(Telling, OneInputEventTimeStreamProcessFunction[Click, Event]):
    """With one input."""

    process_record = RECORD
    on_watermark = REFUSE


class TellTwoOutputs(Telling, TwoOutputEventTimeStreamProcessFunction[Click, Event, Event]):
    """With two outputs."""

    process_record = RECORD
    on_watermark = REFUSE


class TellTwoInputs(Telling, TwoInputNonBroadcastEventTimeStreamProcessFunction[Click, Click, Event]):
    """With two inputs."""

    process_record_from_first_input = RECORD
    process_record_from_second_input = RECORD
    on_watermark_from_first_input = REFUSE
    on_watermark_from_second_input = REFUSE


class TellBroadcast(Telling, TwoInputBroadcastEventTimeStreamProcessFunction[Click, Click, Event]):
    """With a broadcast input."""

    process_record_from_non_broadcast_input = RECORD
    on_watermark_from_non_broadcast_input = REFUSE
    on_watermark_from_broadcast_input = REFUSE

    def process_record_from_broadcast_input(self, record: Click, ctx: NonPartitionedContext[Event]) -> None: ...


class PassBoth(TwoOutputStreamProcessFunction[Any, Any, Any]):
    """Sends its input on, twice."""

    def process_record(self, record: Any, first_output: Any, second_output: Any, ctx: Any) -> None:
        first_output.collect(record)
        second_output.collect(record)


class PassEither(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    """Sends its first input on."""

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...


class PassMain(TwoInputBroadcastStreamProcessFunction[Any, Any, Any]):
    """Sends its main input on."""

    def process_record_from_non_broadcast_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)

    def process_record_from_broadcast_input(self, record: Any, ctx: Any) -> None: ...


Kind = Literal["one", "two-outputs", "two-inputs", "broadcast"]
KINDS: Sequence[Kind] = ("one", "two-outputs", "two-inputs", "broadcast")


@dataclass(frozen=True)
class EventTimeOf(Program):
    """A keyed function of each kind with timers, behind a plain function of that kind (``forwarded``), or not."""

    kind: Kind
    forwarded: bool

    @property
    def name(self) -> str:
        return f"event-time-{self.kind}{'-forwarded' if self.forwarded else ''}"

    def build(self, p: Pipeline) -> None:
        clicks, others = self.clicks(p), self.clicks(p)
        if self.forwarded:
            clicks = {
                "one": lambda: clicks.shuffle().process(Pass[Click]()),
                "two-outputs": lambda: clicks.process(PassBoth()).second,
                "two-inputs": lambda: clicks.connect_and_process(others, PassEither()),
                "broadcast": lambda: clicks.connect_and_process(others.broadcast(), PassMain()),
            }[self.kind]()
        keyed = clicks.key_by(time_of)
        if self.kind == "one":
            p.collect(keyed.process(TellOne()))
        elif self.kind == "two-outputs":
            both = keyed.process(TellTwoOutputs())
            p.collect(both.first)
            p.collect(both.second, "second")
        elif self.kind == "two-inputs":
            p.collect(keyed.connect_and_process(others.key_by(time_of), TellTwoInputs()))
        else:
            p.collect(keyed.connect_and_process(others.broadcast(), TellBroadcast()))

    def clicks(self, p: Pipeline) -> Any:
        return p.source(CLICKS, parallelism=1).process(per_event(time_of)).with_parallelism(1)

    def check(self, run: Run) -> None:
        self.check_output(run, run.out())
        if self.kind == "two-outputs":
            assert sorted(run.out("second"), key=repr) == sorted(run.out(), key=repr)

    def check_output(self, run: Run, events: list[Event]) -> None:
        twice = 2 if self.kind == "two-inputs" else 1
        assert sorted(e.value for e in events if e.what == "record") == sorted(CLICKS * twice)
        assert sorted(e.value for e in events if e.what == "timer") == [2, 3, 4]
        assert {event.subtask for event in events} == set(range(run.parallelism))
        for subtask in range(run.parallelism):
            own = [(event.what, event.value) for event in events if event.subtask == subtask]
            times = [value for what, value in own if what == "time"]
            assert times == sorted(set(times))
            assert times[-2:] == [2, END_OF_TIME]
            if self.kind != "two-inputs" and self.kind != "broadcast" and not self.forwarded:
                assert times == [0, 1, 2, END_OF_TIME]
            for what, value in own:
                if what == "timer":
                    # Fired at the first watermark that is as late, and before that is told.
                    due = min(time for time in times if time >= value)
                    before, after = own[: own.index((what, value))], own[own.index((what, value)) :]
                    assert ("time", due) in after
                    assert all(time < due for kind, time in before if kind == "time")
        if run.parallelism == 1 and self.kind in ("one", "two-outputs"):
            first, second, third = (("record", click) for click in CLICKS)
            told = [first, ("time", 0), second, ("time", 1), third, ("timer", 2), ("time", 2)]
            assert [event[1:] for event in events] == [*told, ("timer", 3), ("timer", 4), ("time", END_OF_TIME)]


class Delay(OneInputEventTimeStreamProcessFunction[int, tuple[int, int]]):
    """Emits each number when its time, five more than ten times itself, has come."""

    def __init__(self) -> None:
        self.due: dict[int, int] = {}

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.due[record * 10 + 5] = record
        self.event_time.register_timer(record * 10 + 5)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect((self.due.pop(timestamp), timestamp))


class Punctual(OneInputEventTimeStreamProcessFunction[tuple[int, int], tuple[int, int, bool]]):
    """Tells whether a record is late."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: tuple[int, int], output: Any, ctx: Any) -> None:
        output.collect((record[0], ctx.timestamp, ctx.timestamp <= self.event_time.current_time()))


class TimersBeforeWatermarks(Program):
    """What timers emit is not late for the next function.

    In Flink the watermark goes first, and so it is: two windows one after the other lose most of their data (E1), and
    what a timer emits has no timestamp at all (H2).
    """

    def build(self, p: Pipeline) -> None:
        stamped = p.source(NUMBERS).process(per_event(tenfold))
        delayed = stamped.key_by(mod3).process(Delay())
        p.collect(delayed.key_by(lambda pair: parity(pair[0])).process(Punctual()))

    def check(self, run: Run) -> None:
        run.expect_all(*((number, number * 10 + 5, False) for number in NUMBERS))


def tenfold(number: int) -> int:
    """The time of a number, in ms."""
    return number * 10


class Stamp(OneInputStreamProcessFunction[int, int]):
    """Gives every number but each third one a timestamp."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record % 3 == 0:
            output.collect(record)
        else:
            output.collect_and_overwrite_timestamp(record, tenfold(record))


class ReadStamp(OneInputStreamProcessFunction[int, tuple[int, int | None]]):
    """Tells the timestamp of each number."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect((record, ctx.timestamp))


class Timestamps(Program):
    """They go with their records, whichever way; records without one have none."""

    def build(self, p: Pipeline) -> None:
        stamped = p.source(NUMBERS).process(Stamp())
        mapped = stamped.shuffle().map(int).filter(lambda number: True).flat_map(lambda number: [number])
        ways: dict[str, Any] = {
            "chained": stamped,
            "keyed": stamped.key_by(mod3).process(Pass[int](), mod3),
            "mapped": mapped.key_by(parity),
            "global": stamped.global_(),
            "two-outputs": stamped.process(PassBoth()).second,
            "two-inputs": stamped.key_by(mod3).connect_and_process(stamped.key_by(mod3), PassEither()),
            "broadcast": stamped.connect_and_process(stamped.broadcast(), PassMain()),
        }
        for way, stream in ways.items():
            p.collect(stream.process(ReadStamp()), way)

    def check(self, run: Run) -> None:
        for way in run.results:
            run.expect_all(*((n, None if n % 3 == 0 else tenfold(n)) for n in NUMBERS), name=way)


class Silent(OneInputStreamProcessFunction[int, int]):
    """Falls idle before it has said anything."""

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [EVENT_TIME, IDLE_STATUS]

    def open(self, ctx: Any) -> None:
        ctx.watermark_manager.emit_watermark(IDLE_STATUS.new_watermark(True))

    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...


class HearTime(OneInputStreamProcessFunction[Any, tuple[int, str, int | bool]]):
    """A plain function, to which event time and idleness are watermarks like any other."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        what = "idle" if EventTimeExtension.is_idle_status_watermark(watermark) else "time"
        output.collect((ctx.task_info.index_of_this_subtask, what, watermark.value))
        return WatermarkHandlingResult.PEEK


class Idleness(Program):
    """Who is idle holds nobody up, and says so: through two operators with two inputs each."""

    def build(self, p: Pipeline) -> None:
        silent, other = (p.source(FEW).process(Silent()) for _ in range(2))
        neither = silent.connect_and_process(other, PassEither())
        p.collect(neither.shuffle().process(HearTime()), "nobody speaks")
        speaking = p.source(NUMBERS, parallelism=1).process(per_event(tenfold)).with_parallelism(1)
        one = speaking.global_().connect_and_process(neither.global_(), PassEither())
        p.collect(one.process(HearTime()), "one speaks")

    def check(self, run: Run) -> None:
        end = [(subtask, "time", END_OF_TIME) for subtask in range(run.parallelism)]
        idle = [(subtask, "idle", True) for subtask in range(run.parallelism)]
        run.expect_all(*idle, *end, name="nobody speaks")
        times = [value for _, what, value in run.out("one speaks") if what == "time"]
        # If the speaker has ended before the others are known to be idle, there is nothing left but the end.
        assert times[-1] == END_OF_TIME
        assert times[:-1] in ([], [tenfold(number) - 1 for number in NUMBERS][-len(times) + 1 :])


class Reminding(OneInputStreamProcessFunction[int, tuple[str, int]]):
    """Sets processing-time timers that are due, and such that will not be before the job ends; some are taken back."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        timers = ctx.processing_time_manager
        for timestamp in (1, 2, 3, 10**15 + 1, 10**15 + 2):
            timers.register_timer(timestamp)
        timers.delete_timer(2)
        timers.delete_timer(10**15 + 2)
        output.collect(("record", record))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        assert ctx.timestamp is None
        key: Any = ctx.state_manager.current_key
        output.collect(("due" if timestamp < 10 else "left", key))
        if timestamp > 10:
            ctx.processing_time_manager.register_timer(2 * timestamp)  # in vain: it is over

    def end_input(self, ctx: Any) -> None:
        def visit(output: Any, partition: Any) -> None:
            output.collect(("end", partition.state_manager.current_key))

        ctx.apply_to_all_partitions(visit)


class ProcessingTimers(Program):
    """Due ones fire, those that are left fire at the end of bounded input, once, before ``end_input``.

    Flink drops the latter in STREAMING, and never ends in BATCH if they set themselves anew.
    """

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).key_by(mod3).process(Reminding()))

    def check(self, run: Run) -> None:
        assert sorted(number for what, number in run.out() if what == "record") == list(NUMBERS)
        for key in range(3):
            told = [what for what, number in run.out() if number == key and what != "record"]
            assert told[-1] == "end"
            assert told.count("end") == 1
            assert told.count("left") == 1
            # Two for each micro-batch that has the key.
            assert told.count("due") in range(2, 2 * len(NUMBERS[key::3]) + 1, 2)


@no_output_until_end_of_input
class Largest(OneInputEventTimeStreamProcessFunction[int, tuple[int, int]]):
    """The largest number of each key, when all is over."""

    def __init__(self) -> None:
        self.largest: dict[int, int] = {}

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        key = mod3(record)
        self.largest[key] = max(record, self.largest.get(key, record))
        self.event_time.register_timer(END_OF_TIME)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        key = ctx.state_manager.current_key
        output.collect((key, self.largest[key]))


class NothingBeforeTheEnd(Program):
    """A function that promises to wait for the end of input may emit from timers that fire there."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).process(per_event(tenfold)).key_by(mod3).process(Largest()))

    def check(self, run: Run) -> None:
        run.expect_all(*((key, max(NUMBERS[key::3])) for key in range(3)))


class EventTimeDiary(OneInputEventTimeStreamProcessFunction[int, int]):
    """Notes its life."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary
        self.inits = 0

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.inits += 1

    def open(self, ctx: Any) -> None:
        self.diary.opened(ctx)
        self.diary.note(f"after-{self.inits}-init")

    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        self.diary.note(f"time-{timestamp}")

    def end_input(self, ctx: Any) -> None:
        self.diary.note("end")

    def close(self) -> None:
        self.diary.note("close")


class EventTimeLifecycle(Program):
    """Init, open, and at the end the end of time, ``end_input`` and ``close``; without any watermark, too."""

    def build(self, p: Pipeline) -> None:
        p.source(FEW).process(EventTimeDiary(Diary(p.folder, "diary")))

    def check(self, run: Run) -> None:
        noted = diaries(run, "diary")
        assert sorted(noted) == list(range(run.parallelism))
        for events in noted.values():
            assert events == ["open", "after-1-init", f"time-{END_OF_TIME}", "end", "close"]


PROGRAMS: tuple[Program, ...] = (
    *(EventTimeOf(kind, forwarded) for kind in KINDS for forwarded in (False, True)),
    TimersBeforeWatermarks(),
    Timestamps(),
    Idleness(),
    ProcessingTimers(),
    NothingBeforeTheEnd(),
    EventTimeLifecycle(),
)
