"""Runs a pipeline in this process until its sink has received some records. Nothing is stored or committed."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from dsv2.base.clock import Clock, SystemClock
from dsv2.errors import ConfigurationError
from dsv2.graph import OperatorKind, Plan
from dsv2.local.checks import check_plan
from dsv2.local.run import LocalRun
from dsv2.local.sources import Reading
from dsv2.local.tasks import CancelledError, LocalTasks
from dsv2.model.context import RuntimeExecutionMode
from dsv2.model.resource import resources_in_use
from dsv2.runtime.exchange.frames import EmitFrame
from dsv2.runtime.operator.callback_limit import callback_limit
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.timers import BatchTime
from dsv2.sources import BaseSource

_FIRST_BATCH, _GROWTH = 128, 4
_POLL = timedelta(milliseconds=10)


def sample(plan: Plan, limit: int, seconds: float | None) -> list[Any]:
    """Return the first records that the only sink of ``plan`` receives.

    Sources are read from their beginning, and nothing is committed to them.

    Args:
        plan: The plan.
        limit: How many records are enough. There may be fewer, if the input ends.
        seconds: After how many seconds any number is enough. None: never.

    Raises:
        ConfigurationError: The local runtime cannot read a source, or reading it changes something elsewhere.
        UserFunctionError: A callback raised an exception.
    """
    check_plan(plan)
    for operator in plan.operators:
        if isinstance(operator.body, BaseSource) and (reason := operator.body.dsv2_refuses_samples) is not None:
            raise ConfigurationError(
                f"The source {operator}, defined at {operator.location}, cannot be sampled: {reason}"
            )
    return _Sampling(plan, limit, seconds, SystemClock()).run()


class _Sampling:
    def __init__(self, plan: Plan, limit: int, seconds: float | None, clock: Clock) -> None:
        (self._sink,) = (operator.id for operator in plan.operators if operator.kind is OperatorKind.SINK)
        self._plan = plan
        self._limit = limit
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._clock = clock
        self._time = BatchTime(clock.now_ms())
        self._run = LocalRun(
            plan,
            clock,
            self._new_tasks,
            positions={},
            reading=Reading(),
            is_cancelled=self._is_enough,
        )
        self._counted = 0  # frames
        self._records = 0  # in them

    def run(self) -> list[Any]:
        with resources_in_use(), callback_limit(self._plan.callback_timeout_ms, may_exit=False):
            try:
                self._run.tasks.open()
                self._run_batches()
            except CancelledError:
                pass  # there are enough
            finally:
                self._run.close()
        frames = (frame for _, found in self._run.take_collected() for frame in found)
        return list(itertools.islice((record for frame in frames for record in frame.batch.rows()), self._limit))

    def _new_tasks(self, codec: Codec, to_sink: EmitFrame, is_cancelled: Callable[[], bool]) -> LocalTasks:
        plan, clock = self._plan, self._clock
        job = JobContext.in_process(plan, self._time, clock, codec)
        choice = random.Random(0)
        return LocalTasks(plan, job, clock, choice, to_sink, checks=False, pages=None, is_cancelled=is_cancelled)

    def _is_enough(self) -> bool:
        frames = self._run.collected(self._sink)
        while self._counted < len(frames):
            self._records += len(frames[self._counted].batch)
            self._counted += 1
        return self._records >= self._limit or (self._deadline is not None and time.monotonic() >= self._deadline)

    def _run_batches(self) -> None:
        size: int | None = None if self._plan.mode is RuntimeExecutionMode.BATCH else _FIRST_BATCH
        is_first = True
        while is_first or not (self._run.ended or self._is_enough()):
            self._time.now_ms = now = max(self._time.now_ms, self._clock.now_ms())
            halt = self._run.halt(now)
            if halt is not None and halt.until_ms is None:
                return
            if halt is not None and halt.until_ms is not None:
                self._time.now_ms = halt.until_ms
            reads = self._run.begin_batch(0 if halt is not None else size)
            deadline = self._run.tasks.next_deadline()
            is_due = deadline is not None and deadline <= self._time.now_ms
            if reads or is_first or is_due or halt is not None:
                self._run.run_batch(0)
                size = None if size is None else size * _GROWTH
            else:
                self._clock.wait(_POLL)
            is_first = False
