"""Calls a function under an error policy. Functions without one are called by ``FunctionCalls`` itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dsv2.model.error_policy import ErrorPolicy
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.collector import HeldEmitter, HeldOutput
from dsv2.runtime.exchange.emitter import Emit, EmitStamped, Emitter
from dsv2.runtime.operator.attempts import Attempts, EmitLetter
from dsv2.runtime.operator.function_calls import CallEnvironment, FunctionCalls
from dsv2.runtime.operator.processors import Processor
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.report.letter_buffer import LetterBox
from dsv2.runtime.report.metrics import DefaultCounter
from dsv2.runtime.state.undo import UndoLog
from dsv2.spi import SkippableTimersFunction
from dsv2.watermark import Watermark, WatermarkHandlingResult

R = TypeVar("R")


class AttemptingCalls(FunctionCalls):
    """Runs each callback as an attempt. Those that cannot be skipped (``open``, ``close``, ``tick``) fail the job."""

    def __init__(self, environment: CallEnvironment, policy: ErrorPolicy, undo: UndoLog, held: HeldOutput) -> None:
        instance, job, outputs = environment.instance, environment.job, environment.outputs
        send_watermark, hold = environment.send_watermark, held.hold
        letters = instance.operator.dead_letter_output
        self._stored = LetterBox(job.codec, instance.operator.parallelism)
        emit_letter = self._stored.add if letters is None else _emitting(outputs[letters])
        current = self.timestamp_kind()
        self._attempts = Attempts(policy, instance, job, undo, held, emit_letter, current)
        held_environment = replace(
            environment,
            outputs=[HeldEmitter(output, held) for output in outputs],
            send_watermark=lambda identifier, value, output: hold((send_watermark, identifier, value, output)),
            new_dict=undo.new_dict,
            current=current,
        )
        super().__init__(held_environment)
        self._attempts.metrics = self.metrics
        self._partition.attempt = self._attempt_in_pane

    def open(self) -> None:
        self._attempts.run_once(super().open)

    def watermark(self, input_index: int, watermark: Watermark) -> WatermarkHandlingResult:
        results: list[WatermarkHandlingResult] = []
        call = super().watermark
        self._attempts.run(lambda: results.append(call(input_index, watermark)))
        return results[-1] if results else WatermarkHandlingResult.PEEK  # a skipped callback holds nothing back

    def event_time_watermark(self, time: int) -> None:
        self._attempts.run(super().event_time_watermark, time)

    def end(self, input_index: int) -> None:
        self._attempts.run(super().end, input_index)

    def tick(self, now_ms: int) -> None:
        self._attempts.run_once(super().tick, now_ms)

    def visit(self, key: Any, visitor: Callable[[Any], R]) -> R:
        result: R = self._attempts.run_once(super().visit, key, visitor)
        return result

    def begin_micro_batch(self) -> None:
        self._attempts.begin_micro_batch()

    def take_letters(self) -> list[dict[str, Any]]:
        return self._stored.take()

    def _fire(self, callback: str, argument: Any, key: Any) -> None:
        succeeded = self._attempts.run(super()._fire, callback, argument, key)
        if not succeeded and isinstance(self._function, SkippableTimersFunction):
            self._partition.key = key
            self._function.skip_timer(argument, by_event=callback == "on_event_timer")
            self._partition.key = NO_KEY

    def _end_panes(self, time: int, *, by_event: bool) -> None:
        self._attempts.run_once(partial(super()._end_panes, time, by_event=by_event))

    def _attempt_in_pane(self, action: Callable[..., object], *arguments: Any) -> bool:
        return self._attempts.run(self._call_in_pane, action, arguments)

    def _call_in_pane(self, action: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            action(*arguments)
        except BaseException as error:
            self._instance.fail("on_trigger", error, key=self._partition.key)

    def _new_processor(self, input_index: int) -> Processor:
        return _AttemptingProcessor(super()._new_processor(input_index), self._attempts, input_index)


class _AttemptingProcessor(Processor):
    """Processes record by record, each as an attempt, by the row path of ``inner``."""

    def __init__(self, inner: Processor, attempts: Attempts, input_index: int) -> None:
        self._run = attempts.run
        self._inner = inner
        self._process_row = inner.new_emit(DefaultCounter())
        attempts.add_input(input_index, self._process_row)
        self._emit = self.new_emit(DefaultCounter())
        self._emit_stamped = inner.new_emit_stamped(self._emit)

    def process(self, batch: RecordBatch[Any]) -> None:
        if batch.timestamps is None:
            emit = self._emit
            for record in batch.rows():
                emit(record)
        else:
            emit_stamped = self._emit_stamped
            for record, timestamp in batch.pairs():
                emit_stamped(record, timestamp)

    def new_emit(self, tally: DefaultCounter) -> Emit:
        run, process = self._run, self._process_row

        def emit(record: Any) -> None:
            tally.count += 1
            run(process, record)

        return emit

    def new_emit_stamped(self, emit: Emit) -> EmitStamped:
        return self._inner.new_emit_stamped(emit)


def _emitting(output: Emitter) -> EmitLetter:
    return lambda letter, received: output.emit_stamped(letter, None)
