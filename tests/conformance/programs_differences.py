"""Programs on which Flink 2.3 loses data, hangs or fails. Each docstring describes Flink's behaviour.

Other differences are tested together with their subject: ``docs/architecture.md`` lists all of them with their tests.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from dsv2.extension.event_time import EventTimeExtension, EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.watermark import (
    LongWatermarkDeclaration,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from dsv2.watermark.event_time import LONG_MIN
from tests.conformance.functions import NUMBERS, itself, mod3, one_key
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.programs_lifecycle import END, Diary, Logged, diaries
from tests.conformance.timing import END_OF_TIME, per_event
from tests.conformance.watermarks import Recorder, Sender, among, values
from tests.durations import ms
from tests.windows import FlinkGenerator, TwoInputWindowRecorder, WindowRecorder

TEN = WindowStrategy.tumbling(ms(10))


def in_order(p: Pipeline, *records: Any) -> Any:
    """A stream of ``records`` through one channel."""
    places = p.source(NUMBERS, 1).filter(lambda place: place < len(records)).with_parallelism(1)
    return places.map(lambda place: records[place]).with_parallelism(1)


@dataclass(frozen=True)
class Released(Program):
    """Only one of many subtasks sends. Its value is delivered when the others have ended, even if all are waited for
    (Flink: never)."""

    aligned: bool

    @property
    def name(self) -> str:
        return f"Released{'Aligned' if self.aligned else ''}"

    @property
    def declaration(self) -> LongWatermarkDeclaration:
        return new_builder(self.name).type_long().combine_wait_for_all_channels(True).aligned(self.aligned).build()

    def build(self, p: Pipeline) -> None:
        last = max(NUMBERS)
        sender = p.source(NUMBERS).process(Sender(self.declaration, lambda number: number if number == last else None))
        first = sender.shuffle().process(Recorder())
        p.collect(first.second, "first")
        p.collect(first.first.shuffle().process(Recorder()).second, "second")

    def check(self, run: Run) -> None:
        for name in ("first", "second"):
            assert [values(run, name, subtask) for subtask in range(run.parallelism)] == [[11]] * run.parallelism
            assert sorted(seen for _, seen in run.out(name) if isinstance(seen, int)) == list(NUMBERS)


class ChainedOrNot(Program):
    """The same values arrive with and without an exchange, in BATCH as in STREAMING.

    In Flink a chained operator receives 5 twice (E5b), and in BATCH no operator after an exchange receives anything
    (E14b).
    """

    DECLARATION = new_builder("chained").type_long().build()

    def build(self, p: Pipeline) -> None:
        sender = p.source(NUMBERS, 1).process(Sender(self.DECLARATION, {0: 5, 1: 5, 2: 7, 3: 3}.get))
        sender = sender.with_parallelism(1)
        p.collect(sender.process(Recorder()).with_parallelism(1).second, "chained")
        p.collect(sender.shuffle().process(Recorder()).with_parallelism(1).second, "exchanged")

    def check(self, run: Run) -> None:
        assert values(run, "chained", 0) == values(run, "exchanged", 0) == [5, 7, 3]


class Now(OneInputEventTimeStreamProcessFunction[int, tuple[int, int]]):
    """Emits each record with the current event time."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect((record, self.event_time.current_time()))


class TimeGoesOnInBatch(Program):
    """Event time advances between the records in BATCH as in STREAMING.

    Flink's BATCH goes from key to key instead, and has no event time before the end (F12b).
    """

    def build(self, p: Pipeline) -> None:
        p.collect(in_order(p, 3, 7, 5).process(per_event(itself)).with_parallelism(1).key_by(mod3).process(Now()))

    def check(self, run: Run) -> None:
        run.expect_all((3, LONG_MIN), (7, 2), (5, 6))


class Remind(OneInputEventTimeStreamProcessFunction[int, int]):
    """Emits each record at the event time that it names, one per key."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.event_time.register_timer(record)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(timestamp)


class WindowsBehindTimers(Program):
    """Output of event timers has their time and comes before the watermark, so downstream windows receive all of it.

    In Flink it has no timestamp, so the window fails (H2), and it comes after the watermark, so it would be late (E10).
    """

    def build(self, p: Pipeline) -> None:
        timed = in_order(p, 1, 9, 12, 25).process(FlinkGenerator(itself)).with_parallelism(1)
        reminded = timed.key_by(one_key).process(Remind())
        p.collect(reminded.key_by(one_key).window(TEN).process(WindowRecorder()))

    def check(self, run: Run) -> None:
        spans = ((0, 10, (1, 9)), (10, 20, (12,)), (20, 30, (25,)))
        fired = [("trigger", 0, *span) for span in spans]
        run.expect(*(event for trigger in fired for event in (trigger, ("clear", *trigger[1:4]))))


class ShortPeriodicInput(Program):
    """An input ends before its generator has emitted anything: all windows fire at the end, and functions are notified.

    Flink's windows fire as well, but ``on_event_time_watermark`` is never called (E10d).
    """

    def build(self, p: Pipeline) -> None:
        generator = EventTimeExtension.new_watermark_generator_builder(itself).build_as_process_function()
        timed = p.source(NUMBERS).process(generator)
        p.collect(timed.key_by(mod3).window(WindowStrategy.tumbling(ms(100))).process(WindowRecorder()), "windows")
        p.collect(timed.key_by(mod3).process(TheEnd()), "end")

    def check(self, run: Run) -> None:
        fired = [event for event in run.out("windows") if event[0] == "trigger"]
        assert sorted(sorted(records) for *_, records in fired) == [[*NUMBERS[key::3]] for key in range(3)]
        run.expect_all(*range(run.parallelism), name="end")


class TheEnd(OneInputEventTimeStreamProcessFunction[int, int]):
    """Emits its number at the end of event time."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        if timestamp == END_OF_TIME:
            output.collect(ctx.task_info.index_of_this_subtask)


FIRED = new_builder("fired").type_long().build()
MARKED = new_builder("marked").type_long().build()


class Announcing(Logged, OneInputWindowStreamProcessFunction[int, int]):
    """Sends the end of each window as a watermark, and logs its lifecycle and the watermarks that it receives."""

    end_input = END

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [FIRED]

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(FIRED.new_watermark(window.end_time))

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        self.diary.note(f"heard-{watermark.value}")
        return WatermarkHandlingResult.PEEK


class HooksOfWindowFunctions(Program):
    """A window function may declare watermarks, receives those of others, and is closed.

    In Flink its declarations are not read, so its watermarks fail as undeclared, and it is never closed (F5).
    """

    def build(self, p: Pipeline) -> None:
        marked = in_order(p, 1, 12).process(Sender(MARKED, among(1))).with_parallelism(1)
        timed = marked.process(FlinkGenerator(itself)).with_parallelism(1)
        fired = timed.key_by(one_key).window(TEN).process(Announcing(Diary(p.folder, "diary")))
        p.collect(fired.global_().process(Recorder()).second)

    def check(self, run: Run) -> None:
        heard = [seen for _, seen in run.out() if seen.identifier == FIRED.identifier]
        assert heard == [FIRED.new_watermark(10), FIRED.new_watermark(20)]
        noted = diaries(run, "diary")
        assert sorted(noted) == list(range(run.parallelism))
        assert all(events == ["open", "heard-1", "end", "close"] for events in noted.values())


class Counting(WindowRecorder):
    """Counts how often it fires."""

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        ctx.metric_group.counter("fired").inc()


class WindowsThatNobodyReads(Program):
    """Windows without a consumer run. In Flink windows on a global stream are then left out of the job (E15e)."""

    def build(self, p: Pipeline) -> None:
        timed = in_order(p, 1, 12).process(FlinkGenerator(itself)).with_parallelism(1)
        timed.global_().window(TEN).process(Counting()).with_uid(p.uid("unread"))

    def check(self, run: Run) -> None:
        assert run.progress("unread").counters == {"fired": 2}


class LateForOneSide(Program):
    """A late record fires its window with the other side of the same window.

    Flink takes the other side of the last accessed window: here 12, which belongs to the next window (G1).
    """

    def build(self, p: Pipeline) -> None:
        left, right = (
            in_order(p, *times).process(FlinkGenerator(itself)).with_parallelism(1).key_by(one_key)
            for times in ((15, 2), (1, 12, 15))
        )
        strategy = WindowStrategy.tumbling(ms(10)).with_allowed_lateness(ms(50))
        p.collect(left.window(strategy).connect_and_process(right, TwoInputWindowRecorder()))

    def check(self, run: Run) -> None:
        fired = [event[4:] for event in run.out() if event[:4] == ("trigger", 0, 0, 10)]
        # If the left side comes first, 2 is not late.
        assert fired in ([((), (1,)), ((2,), (1,))], [((2,), (1,))])
        assert ("trigger", 0, 10, 20, (15,), (12, 15)) in run.out()


PROGRAMS: Sequence[Program] = (
    Released(aligned=False),
    Released(aligned=True),
    ChainedOrNot(),
    TimeGoesOnInBatch(),
    WindowsBehindTimers(),
    ShortPeriodicInput(),
    HooksOfWindowFunctions(),
    WindowsThatNobodyReads(),
    LateForOneSide(),
)
