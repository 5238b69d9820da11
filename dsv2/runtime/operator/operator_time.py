"""The event time of one operator in one subtask: combined over its inputs, passed to the function, sent downstream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.operator.input_activity import InputActivity
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.time_sender import TimeSender
from dsv2.runtime.operator.timed_calls import TimedCalls
from dsv2.watermark import BoolWatermark, LongWatermark, Watermark, WatermarkHandlingStrategy
from dsv2.watermark.event_time import (
    EVENT_TIME,
    IDLE_STATUS,
    LONG_MAX,
    PROCESSING_TIME,
    USE_PROCESSING_TIME,
    EventTimeOfInputs,
)


class OperatorTime:
    """Moves event time, fires its timers, and sends it.

    Args:
        inputs: The event time of the inputs.
        activity: Which inputs are idle or have ended.
        gates: The inputs, which may be added later.
        calls: The calls of the function.
        sender: Sends event time and its status.
        job: Shared by all subtasks of the job.
    """

    def __init__(
        self,
        inputs: EventTimeOfInputs,
        activity: InputActivity,
        gates: Sequence[InputGate],
        calls: TimedCalls,
        sender: TimeSender,
        job: JobContext,
    ) -> None:
        self._inputs = inputs
        self._activity = activity
        self._gates = gates
        self._timed = calls
        self._calls = calls.calls
        self._sender = sender
        self._job = job

    @property
    def reached(self) -> int | None:
        """The event time that the operator has reached, in ms; None: there is none yet."""
        return self._inputs.reached

    def on_watermark(self, input_index: int, time: int) -> None:
        """Process an event time of an input, which may be ``PROCESSING_TIME``."""
        if time != PROCESSING_TIME:
            if self._takes_effect(input_index, LongWatermark(time, EVENT_TIME)):
                self._move(self._inputs.update(input_index, time))
        elif self._takes_effect(input_index, BoolWatermark(True, USE_PROCESSING_TIME)):
            self._move(self._inputs.update(input_index, time))
            if self._gates[input_index].idle and input_index not in self._activity.idle:
                self.on_status(input_index, True)  # the function has not forwarded this so far
            self._activity.report_idle()

    def on_status(self, input_index: int, idle: bool) -> None:
        """Process a status change of an input. The operator is idle when all inputs that have not ended are idle."""
        if self._takes_effect(input_index, BoolWatermark(idle, IDLE_STATUS)):
            self._activity.set_idle(input_index, idle)
            moved = self._inputs.set_idle(input_index, idle)
            if not idle:
                self._activity.report_idle()  # first, because receivers ignore the event time of idle channels
            self._move(moved)
            self._activity.report_idle()

    def on_end(self, input_index: int) -> None:
        """Process the end of an input. After that of the last one, fire all timers."""
        if self._activity.all_ended():
            self._calls.expire()  # the end of the input expires nothing more
        if self._takes_effect(input_index, LongWatermark(LONG_MAX, EVENT_TIME)):
            self._move(self._inputs.end(input_index))
        if self._activity.all_ended():
            self._timed.run(self._fire_last_timers)

    def follow_clock(self) -> None:
        """Move event time to the wall clock, if it is declared to be that."""
        if not self._inputs.uses_processing_time:
            return
        moved = self._inputs.follow_clock(self._job.time.now_ms)
        if self._calls.has_event_time:
            self._calls.fire_event_timers(self._inputs.current)  # including those registered since it advanced
            if moved is not None:
                self._calls.event_time_watermark(moved)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as built-in values: parts of the snapshot of an operator."""
        return {
            "event_time": self._inputs.snapshot(),
            "sent_time": self._sender.snapshot(),
            "inputs": self._activity.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the parts of a snapshot."""
        self._inputs.restore(state["event_time"])
        self._sender.restore(state["sent_time"])
        self._activity.restore(state["inputs"])

    def _takes_effect(self, input_index: int, watermark: Watermark) -> bool:
        """Return whether an event time or idle status takes effect. Functions with event time cannot poll it."""
        if self._calls.has_event_time or watermark.identifier not in self._job.declarations:
            return True
        return self._timed.forwards(input_index, watermark, WatermarkHandlingStrategy.FORWARD)

    def _move(self, time: int | None) -> None:
        if time is None:
            return
        # Event time is forwarded after the records that it triggers. (Flink forwards it first, so that results of one
        # window are late in the next.)
        if time == PROCESSING_TIME:
            self.follow_clock()
        elif self._calls.has_event_time:
            self._timed.run(self._fire, time)
        if not self._activity.all_ended():  # END implies it
            self._sender.send(time)

    def _fire(self, time: int) -> None:
        self._calls.fire_event_timers(time)
        self._calls.event_time_watermark(time)

    def _fire_last_timers(self) -> None:
        self._calls.fire_processing_timers(LONG_MAX, last=True)
        if self._calls.has_event_time:
            self._calls.fire_event_timers(LONG_MAX)  # those registered since event time ended
