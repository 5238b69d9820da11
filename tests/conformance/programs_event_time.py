"""Programs for timers, timestamps and idleness that Flink's ``EventTimeExtensionITCase`` does not cover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsv2.extension.event_time import EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.functions import OneInputStreamProcessFunction, no_output_until_end_of_input
from dsv2.watermark import WatermarkDeclaration
from tests.conformance.functions import FEW, NUMBERS, Pass, PassBoth, PassEither, PassMain, Stamped, mod3, parity
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.programs_lifecycle import END, RECORD, Diary, Logged, diaries
from tests.conformance.timing import END_OF_TIME, EVENT_TIME, IDLE_STATUS, TimeRecorder, per_event


class Delay(OneInputEventTimeStreamProcessFunction[int, tuple[int, int]]):
    """Emits each number at its time, which is five more than ten times its value."""

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
    """Emits whether a record is late."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: tuple[int, int], output: Any, ctx: Any) -> None:
        output.collect((record[0], ctx.timestamp, ctx.timestamp <= self.event_time.current_time()))


class TimersBeforeWatermarks(Program):
    """Output of timers is not late downstream.

    In Flink the watermark comes first, so the output is late: two windows in a row lose most of their data (E1). Output
    of a timer has no timestamp either (H2).
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
    """Assigns a timestamp to every number except each third one."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record % 3 == 0:
            output.collect(record)
        else:
            output.collect_and_overwrite_timestamp(record, tenfold(record))


class Timestamps(Program):
    """Timestamps stay with their records on every path. Records without one have none."""

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
            p.collect(stream.process(Stamped()), way)

    def check(self, run: Run) -> None:
        for way in run.results:
            run.expect_all(*((n, None if n % 3 == 0 else tenfold(n)) for n in NUMBERS), name=way)


class Silent(OneInputStreamProcessFunction[int, int]):
    """Becomes idle before it has emitted anything."""

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [EVENT_TIME, IDLE_STATUS]

    def open(self, ctx: Any) -> None:
        ctx.watermark_manager.emit_watermark(IDLE_STATUS.new_watermark(True))

    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...


class Idleness(Program):
    """An idle channel holds nothing back, and idleness is forwarded: through two operators with two inputs each."""

    def build(self, p: Pipeline) -> None:
        silent, other = (p.source(FEW).process(Silent()) for _ in range(2))
        neither = silent.connect_and_process(other, PassEither())
        p.collect(neither.shuffle().process(TimeRecorder()), "nobody speaks")
        speaking = p.timed(NUMBERS, tenfold)
        one = speaking.global_().connect_and_process(neither.global_(), PassEither())
        p.collect(one.process(TimeRecorder()), "one speaks")

    def check(self, run: Run) -> None:
        end = [(subtask, "time", END_OF_TIME) for subtask in range(run.parallelism)]
        idle = [(subtask, "idle", True) for subtask in range(run.parallelism)]
        run.expect_all(*idle, *end, name="nobody speaks")
        times = [value for _, what, value in run.out("one speaks") if what == "time"]
        # If the active channel ends before the others are known to be idle, only the end remains.
        assert times[-1] == END_OF_TIME
        assert times[:-1] in ([], [tenfold(number) - 1 for number in NUMBERS][-len(times) + 1 :])


class Reminding(OneInputStreamProcessFunction[int, tuple[str, int]]):
    """Registers processing timers, some due and some not due before the job ends, and deletes some."""

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
            ctx.processing_time_manager.register_timer(2 * timestamp)  # has no effect at the end

    def end_input(self, ctx: Any) -> None:
        def visit(output: Any, partition: Any) -> None:
            output.collect(("end", partition.state_manager.current_key))

        ctx.apply_to_all_partitions(visit)


class ProcessingTimers(Program):
    """Due timers fire, and the remaining ones fire once at the end of bounded input, before ``end_input``.

    Flink drops the latter in STREAMING, and never ends in BATCH if they register themselves again.
    """

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).key_by(mod3).process(Reminding()))

    def check(self, run: Run) -> None:
        assert sorted(number for what, number in run.out() if what == "record") == list(NUMBERS)
        for key in range(3):
            calls = [what for what, number in run.out() if number == key and what != "record"]
            assert calls[-1] == "end"
            assert calls.count("end") == 1
            assert calls.count("left") == 1
            # Two for each micro-batch with the key.
            assert calls.count("due") in range(2, 2 * len(NUMBERS[key::3]) + 1, 2)


@no_output_until_end_of_input
class Largest(OneInputEventTimeStreamProcessFunction[int, tuple[int, int]]):
    """Emits the largest number of each key at the end."""

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
    """A function without output until the end of input may emit from timers that fire there."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).process(per_event(tenfold)).key_by(mod3).process(Largest()))

    def check(self, run: Run) -> None:
        run.expect_all(*((key, max(NUMBERS[key::3])) for key in range(3)))


class EventTimeDiary(Logged, OneInputEventTimeStreamProcessFunction[int, int]):
    """Logs its lifecycle."""

    process_record = RECORD
    end_input = END
    inits = 0

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.inits += 1

    def open(self, ctx: Any) -> None:
        super().open(ctx)
        self.diary.note(f"after-{self.inits}-init")

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        self.diary.note(f"time-{timestamp}")


class EventTimeLifecycle(Program):
    """Init, open, and at the end the end of event time, ``end_input`` and ``close``. Also without any watermark.

    Flink does not notify functions of the end of event time.
    """

    def build(self, p: Pipeline) -> None:
        p.source(list[int]()).process(EventTimeDiary(Diary(p.folder, "diary")))

    def check(self, run: Run) -> None:
        noted = diaries(run, "diary")
        assert sorted(noted) == list(range(run.parallelism))
        for events in noted.values():
            assert events == ["open", "after-1-init", f"time-{END_OF_TIME}", "end", "close"]


PROGRAMS: tuple[Program, ...] = (
    TimersBeforeWatermarks(),
    Timestamps(),
    Idleness(),
    ProcessingTimers(),
    NothingBeforeTheEnd(),
    EventTimeLifecycle(),
)
