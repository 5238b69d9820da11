"""Data shared by all subtasks of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from dsv2.base.clock import Clock, SystemClock, elapsed_ns
from dsv2.base.event_loop import EventLoop
from dsv2.graph import Plan
from dsv2.model.context import RuntimeExecutionMode
from dsv2.model.resource import Resource
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.page_store import PageStores, in_blob
from dsv2.runtime.state.timers import BatchTime
from dsv2.watermark import WatermarkDeclaration

_OF_PROCESS = Resource(EventLoop, close=EventLoop.close)


@dataclass(frozen=True, slots=True)
class JobContext:
    """Passed by the runtime to each subtask.

    Attributes:
        job_name: The name of the job.
        mode: The execution mode.
        declarations: The watermarks of the job by identifier.
        codec: Serializes state.
        time: The time of the current micro-batch, which the runtime updates before each one.
        attempt_number: The attempt of the task.
        page_stores: Creates the stores that hold keyed state between micro-batches.
        wait: Waits before a callback is repeated.
        event_loop: Runs async functions.
        elapsed_ns: Measures durations for progress.
    """

    job_name: str
    mode: RuntimeExecutionMode
    declarations: Mapping[str, WatermarkDeclaration]
    codec: Codec
    time: BatchTime
    attempt_number: int = 0
    page_stores: PageStores = in_blob
    wait: Callable[[timedelta], None] = SystemClock().wait
    event_loop: Resource[EventLoop] = _OF_PROCESS
    elapsed_ns: Callable[[], int] = elapsed_ns

    @staticmethod
    def in_process(plan: Plan, time: BatchTime, clock: Clock, codec: Codec | None = None) -> JobContext:
        """Create the context of a job in this process, which waits and calls async functions by ``clock``.

        ``codec``: None: one for the types of the plan.
        """
        return JobContext(
            plan.job_name,
            plan.mode,
            plan.declarations,
            codec or Codec(TypeRegistry.of(plan)),
            time,
            wait=clock.wait,
            event_loop=_event_loop_of(clock),
        )


def _event_loop_of(clock: Clock) -> Resource[EventLoop]:
    """Create the event loop of a job with ``clock``: a real one for the system clock."""
    if isinstance(clock, SystemClock):
        return Resource(EventLoop, close=EventLoop.close)
    return Resource(partial(_on_clock, clock), close=EventLoop.close)


def _on_clock(clock: Clock) -> EventLoop:
    from dsv2.runtime.operator.clock_event_loop import ClockEventLoop  # imports asyncio, which takes long

    return EventLoop(partial(ClockEventLoop, clock))
