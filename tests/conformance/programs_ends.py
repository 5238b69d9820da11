"""Programs for watermarks at the edges of a subtask's life: in ``open``, in ``end_input``, and while idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dsv2.extension.event_time import EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.watermark import WatermarkDeclaration, new_builder
from tests.conformance.functions import NUMBERS, mod3
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.timing import IDLE_STATUS
from tests.conformance.watermarks import Recorder, check_received, send, signals, values

FIRST = 3


class Once(OneInputStreamProcessFunction[int, int]):
    """Sends one watermark, a number of its subtask, in ``open`` or in ``end_input``. May be idle from the start."""

    def __init__(self, declaration: WatermarkDeclaration, callback: str, *, idle: bool = False) -> None:
        self.declaration = declaration
        self.callback = callback
        self.idle = idle

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [self.declaration, IDLE_STATUS] if self.idle else [self.declaration]

    def open(self, ctx: Any) -> None:
        if self.idle:
            send(ctx, IDLE_STATUS, True)
        self._send("open", ctx)

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)

    def end_input(self, ctx: Any) -> None:
        self._send("end_input", ctx)

    def _send(self, callback: str, ctx: Any) -> None:
        if callback == self.callback:
            send(ctx, self.declaration, FIRST + ctx.task_info.index_of_this_subtask)


@dataclass(frozen=True)
class OneFromEach(Program):
    """The first combination includes all values, in any reading order, even of channels that have ended.

    Flink never drops the value of a channel that has ended.
    """

    function: str
    callback: str

    @property
    def name(self) -> str:
        return f"OneFromEach-{self.function}-{self.callback}"

    @property
    def declaration(self) -> WatermarkDeclaration:
        builder = getattr(new_builder(self.name).type_long(), f"combine_function_{self.function}")()
        declaration: WatermarkDeclaration = builder.combine_wait_for_all_channels(True).build()
        return declaration

    def build(self, p: Pipeline) -> None:
        sender = p.source(NUMBERS).process(Once(self.declaration, self.callback))
        p.collect(sender.shuffle().process(Recorder()).second)

    def check(self, run: Run) -> None:
        sent = [FIRST + lane for lane in range(run.parallelism)]
        check_received(run, self.declaration, "out", [[value] for value in sent], run.parallelism)
        for subtask in range(run.parallelism):
            received = values(run, "out", subtask)
            if self.function == "max":
                assert received == [max(sent)]
            else:
                assert received[0] == min(sent)
                assert received == sorted(received)


@dataclass(frozen=True)
class FromIdleSubtasks(Program):
    """Watermarks of an idle subtask are delivered, chained and unchained, waited for or not."""

    wait: bool

    @property
    def name(self) -> str:
        return f"FromIdleSubtasks{'-wait' * self.wait}"

    @property
    def declaration(self) -> WatermarkDeclaration:
        builder = new_builder(self.name).type_long().combine_function_max()
        return builder.combine_wait_for_all_channels(self.wait).build()

    def build(self, p: Pipeline) -> None:
        sender = p.source(NUMBERS).process(Once(self.declaration, "end_input", idle=True))
        p.collect(sender.process(Recorder()).second, "chained")
        p.collect(sender.shuffle().process(Recorder()).second, "exchanged")

    def check(self, run: Run) -> None:
        sent = [FIRST + lane for lane in range(run.parallelism)]
        assert [self._received(run, "chained", lane) for lane in range(run.parallelism)] == [[n] for n in sent]
        for subtask in range(run.parallelism):
            received = self._received(run, "exchanged", subtask)
            assert max(received) == max(sent)
            assert self.wait or sorted(received) == sent  # otherwise several may be combined

    def _received(self, run: Run, name: str, subtask: int) -> list[int]:
        """The watermarks received without the idle status, which is a watermark as well."""
        return [signal.value for signal in signals(run, name, subtask) if signal.identifier == self.name]


class LastTimers(OneInputEventTimeStreamProcessFunction[int, int]):
    """Has a processing timer that is never due before the end, and registers an event timer when it fires."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        ctx.processing_time_manager.register_timer(2**60)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        self.event_time.register_timer(ctx.state_manager.current_key)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(timestamp)


class EventTimersOfTheLastTimers(Program):
    """They fire before ``end_input``."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).key_by(mod3).process(LastTimers()))

    def check(self, run: Run) -> None:
        run.expect_all(0, 1, 2)


PROGRAMS = (
    *(OneFromEach(function, callback) for function in ("min", "max") for callback in ("open", "end_input")),
    *(FromIdleSubtasks(wait) for wait in (False, True)),
    EventTimersOfTheLastTimers(),
)
