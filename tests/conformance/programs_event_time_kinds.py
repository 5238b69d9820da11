"""Programs for event time in functions of every kind: all of Flink's ``EventTimeExtensionITCase``.

Watermarks of the generator are deliberately one less than Flink's: where Flink's tests expect 1, 2, 3, these expect 0,
1, 2. At the end event time is the maximum, of which Flink does not notify functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from dsv2 import NonPartitionedContext
from dsv2.extension.event_time import (
    EventTimeManager,
    OneInputEventTimeStreamProcessFunction,
    TwoInputBroadcastEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
    TwoOutputEventTimeStreamProcessFunction,
)
from dsv2.watermark import Watermark, WatermarkHandlingResult, new_builder
from tests.conformance.functions import Pass, PassBoth, PassEither, PassMain
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.timing import END_OF_TIME, TimeRecorder
from tests.conformance.watermarks import FROM_FIRST, FROM_SECOND, SendAtEnd, SidesRecorder


class Click(NamedTuple):
    """Flink's input."""

    time: int
    name: str


CLICKS = (Click(1, "a"), Click(2, "b"), Click(3, "c"))


class Event(NamedTuple):
    """A call of a function. ``value`` is a click or a time."""

    subtask: int
    what: Literal["record", "time", "timer"]
    value: Any


def time_of(click: Click) -> int:
    """Its time in ms."""
    return click.time


class EmitsCalls:
    """Emits its calls to every output, and registers a timer for one more than each record's time."""

    event_time: EventTimeManager

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def record(self, record: Click, *args: Any) -> None:
        assert self.event_time.current_time() < record.time, "no record is late"
        assert args[-1].timestamp == record.time
        self.event_time.register_timer(record.time + 1)
        self.emit_call("record", record, *args)

    def on_event_time_watermark(self, timestamp: int, *args: Any) -> None:
        assert self.event_time.current_time() == timestamp
        self.emit_call("time", timestamp, *args)

    def on_event_timer(self, timestamp: int, *args: Any) -> None:
        assert args[-1].timestamp == timestamp <= self.event_time.current_time()
        assert args[-1].state_manager.current_key == timestamp - 1
        self.emit_call("timer", timestamp, *args)

    def emit_call(self, what: Literal["record", "time", "timer"], value: Any, *args: Any) -> None:
        *outputs, ctx = args
        for output in outputs:
            output.collect(Event(ctx.task_info.index_of_this_subtask, what, value))

    def refuse(self, watermark: Watermark, *args: Any) -> WatermarkHandlingResult:
        raise AssertionError("event time is not told as a watermark")


# Typed Any so that every kind can use them.
RECORD: Any = EmitsCalls.record
REFUSE: Any = EmitsCalls.refuse


class OneInput(EmitsCalls, OneInputEventTimeStreamProcessFunction[Click, Event]):
    """With one input."""

    process_record = RECORD
    on_watermark = REFUSE


class TwoOutputs(EmitsCalls, TwoOutputEventTimeStreamProcessFunction[Click, Event, Event]):
    """With two outputs."""

    process_record = RECORD
    on_watermark = REFUSE


class TwoInputs(EmitsCalls, TwoInputNonBroadcastEventTimeStreamProcessFunction[Click, Click, Event]):
    """With two inputs."""

    process_record_from_first_input = RECORD
    process_record_from_second_input = RECORD
    on_watermark_from_first_input = REFUSE
    on_watermark_from_second_input = REFUSE


class BroadcastInput(EmitsCalls, TwoInputBroadcastEventTimeStreamProcessFunction[Click, Click, Event]):
    """With a broadcast input."""

    process_record_from_non_broadcast_input = RECORD
    on_watermark_from_non_broadcast_input = REFUSE
    on_watermark_from_broadcast_input = REFUSE

    def process_record_from_broadcast_input(self, record: Click, ctx: NonPartitionedContext[Event]) -> None: ...


class TimelyPass(Pass[Any], OneInputEventTimeStreamProcessFunction[Any, Any]):
    """Forwards its input, with event time."""


class TimelyPassBoth(PassBoth, TwoOutputEventTimeStreamProcessFunction[Any, Any, Any]):
    """Forwards its input to both outputs, with event time."""


class TimelyPassEither(PassEither, TwoInputNonBroadcastEventTimeStreamProcessFunction[Any, Any, Any]):
    """Forwards its first input, with event time."""


class TimelyPassMain(PassMain, TwoInputBroadcastEventTimeStreamProcessFunction[Any, Any, Any]):
    """Forwards its main input, with event time."""


class TimeAndRecordRecorder(TimeRecorder):
    """Emits records, too."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect((ctx.task_info.index_of_this_subtask, "record", record))


Kind = Literal["one", "two-outputs", "two-inputs", "broadcast"]
KINDS: Sequence[Kind] = ("one", "two-outputs", "two-inputs", "broadcast")
FORWARDERS: dict[Kind, tuple[Any, Any]] = {
    "one": (Pass, TimelyPass),
    "two-outputs": (PassBoth, TimelyPassBoth),
    "two-inputs": (PassEither, TimelyPassEither),
    "broadcast": (PassMain, TimelyPassMain),
}


def clicks_of(p: Pipeline) -> Any:
    """Clicks with event time, from one subtask."""
    return p.timed(CLICKS, time_of)


def forwarded(kind: Kind, p: Pipeline, timely: bool) -> Any:
    """Clicks after a function of that kind on non-keyed streams, which has event time (``timely``) or is plain."""
    clicks, function = clicks_of(p), FORWARDERS[kind][timely]()
    if kind == "one":
        return clicks.shuffle().process(function)
    if kind == "two-outputs":
        return clicks.process(function).second
    if kind == "two-inputs":
        return clicks.connect_and_process(clicks_of(p), function)
    return clicks.connect_and_process(clicks_of(p).broadcast(), function)


class GeneratedEventTime(Program):
    """testWatermarkGeneratorGenerateEventTimeWatermark: records and watermarks arrive downstream of a generator."""

    def build(self, p: Pipeline) -> None:
        p.collect(clicks_of(p).process(TimeAndRecordRecorder()).with_parallelism(1))

    def check(self, run: Run) -> None:
        events: list[tuple[str, Any]] = []
        for click in CLICKS:
            events += [("record", click), ("time", click.time - 1)]
        assert run.out() == [(0, *event) for event in [*events, ("time", END_OF_TIME)]]


@dataclass(frozen=True)
class ForwardedEventTime(Program):
    """test…ForwardEventTimeWatermark: a function of each kind forwards event time, whether or not it uses it."""

    kind: Kind
    timely: bool

    @property
    def name(self) -> str:
        return f"event-time-forwarded-{self.kind}{'-timely' * self.timely}"

    def build(self, p: Pipeline) -> None:
        p.collect(forwarded(self.kind, p, self.timely).shuffle().process(TimeAndRecordRecorder()))

    def check(self, run: Run) -> None:
        heard = [event[1:] for event in run.out()]
        clicks = [value for what, value in heard if what == "record"]
        assert sorted(clicks) == list(CLICKS)
        for subtask in range(run.parallelism):
            times = [value for index, what, value in run.out() if (index, what) == (subtask, "time")]
            # Two inputs forward the minimum. A plain function also forwards the combined value.
            assert times == [0, 1, 2, END_OF_TIME]
        if run.parallelism == 1:
            assert clicks == list(CLICKS)


@dataclass(frozen=True)
class EventTimeOf(Program):
    """test…ReceiveEventTimeWatermarkAndRegisterTimer: a keyed function of each kind with timers.

    It follows the generator, or another function of that kind, which is plain or has event time itself
    (testOneInputEventTimeProcessFunctionForwardEventTimeWatermark and similar tests).
    """

    kind: Kind
    behind: Literal["generator", "plain", "timely"]

    @property
    def name(self) -> str:
        return f"event-time-{self.kind}-behind-{self.behind}"

    def build(self, p: Pipeline) -> None:
        clicks = clicks_of(p) if self.behind == "generator" else forwarded(self.kind, p, self.behind == "timely")
        keyed = clicks.key_by(time_of)
        if self.kind == "one":
            p.collect(keyed.process(OneInput()))
        elif self.kind == "two-outputs":
            both = keyed.process(TwoOutputs())
            p.collect(both.first)
            p.collect(both.second, "second")
        elif self.kind == "two-inputs":
            p.collect(keyed.connect_and_process(clicks_of(p).key_by(time_of), TwoInputs()))
        else:
            p.collect(keyed.connect_and_process(clicks_of(p).broadcast(), BroadcastInput()))

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
            assert times == [0, 1, 2, END_OF_TIME]
            for what, value in own:
                if what == "timer":
                    # The timer fires at the first watermark that reaches it, before that watermark is shown.
                    due = min(time for time in times if time >= value)
                    before, after = own[: own.index((what, value))], own[own.index((what, value)) :]
                    assert ("time", due) in after
                    assert all(time < due for kind, time in before if kind == "time")
        if run.parallelism == 1 and self.kind in ("one", "two-outputs"):
            first, second, third = (("record", click) for click in CLICKS)
            expected = [first, ("time", 0), second, ("time", 1), third, ("timer", 2), ("time", 2)]
            assert [event[1:] for event in events] == [*expected, ("timer", 3), ("timer", 4), ("time", END_OF_TIME)]


SIGNAL = new_builder("of event-time functions").type_long().build()


class EmitsInputs(SidesRecorder, TimelyPassEither):
    """With two inputs."""

    on_watermark_from_first_input = FROM_FIRST
    on_watermark_from_second_input = FROM_SECOND


class EmitsSides(SidesRecorder, TimelyPassMain):
    """With a broadcast input."""

    on_watermark_from_non_broadcast_input = FROM_FIRST
    on_watermark_from_broadcast_input = FROM_SECOND


class WatermarksOfEachInput(Program):
    """A function with event time receives a watermark of the program in the callback of the input that it came from.

    Flink's wrapper of broadcast functions passes those of the main input to the callback of the broadcast input (F2).
    """

    def build(self, p: Pipeline) -> None:
        none = list[Click]()
        main, side = (p.source(none, 1).process(SendAtEnd(SIGNAL, value)).with_parallelism(1) for value in (1, 2))
        p.collect(main.connect_and_process(side, EmitsInputs()).with_parallelism(1), "inputs")
        p.collect(main.connect_and_process(side.broadcast(), EmitsSides()).with_parallelism(1), "broadcast")

    def check(self, run: Run) -> None:
        for name in ("inputs", "broadcast"):
            run.expect_all((0, 1, 1), (0, 2, 2), name=name)


PROGRAMS: tuple[Program, ...] = (
    GeneratedEventTime(),
    *(ForwardedEventTime(kind, timely) for kind in KINDS for timely in (False, True)),
    *(EventTimeOf(kind, behind) for kind in KINDS for behind in ("generator", "plain", "timely")),
    WatermarksOfEachInput(),
)
