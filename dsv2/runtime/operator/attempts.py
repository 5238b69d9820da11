"""Attempts to run a callback under an error policy: all of its effects happen, or none of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

from dsv2.error_policy import DeadLetter, ErrorAction, ErrorPolicy
from dsv2.errors import UserFunctionError
from dsv2.runtime.exchange.collector import CurrentTimestamp
from dsv2.runtime.exchange.held import HeldOutput
from dsv2.runtime.operator.function_instance import FunctionInstance
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.report.failure import NO_KEY, NO_RECORD
from dsv2.runtime.report.letter_box import Received
from dsv2.runtime.report.metrics import DefaultMetricGroup
from dsv2.runtime.state.undo import UndoLog

__all__ = ("Attempts", "EmitLetter")

EmitLetter: TypeAlias = Callable[[DeadLetter[Any], Received | None], object]
"""Called with each dead letter, and the record that can be processed again, if there is one."""

_COUNTERS = {ErrorAction.SKIP: "errors_skipped", ErrorAction.DEAD_LETTER: "errors_dead_lettered"}


class Attempts:
    """Runs the callbacks of one function in one subtask."""

    def __init__(
        self,
        policy: ErrorPolicy,
        instance: FunctionInstance,
        job: JobContext,
        undo: UndoLog,
        held: HeldOutput,
        emit_letter: EmitLetter,
        current: CurrentTimestamp,
    ) -> None:
        """Create it for one function.

        Args:
            policy: The policy.
            instance: The function.
            job: Shared by all subtasks of the job.
            undo: Undoes changes of declared state.
            held: Holds the output of a callback.
            emit_letter: Emits or stores dead letters.
            current: The timestamp of the current record.
        """
        self._policy = policy
        self._instance = instance
        self._job = job
        self._undo = undo
        self._held = held
        self._emit_letter = emit_letter
        self._current = current
        self._inputs: dict[Callable[..., Any], int] = {}
        self._failures = 0  # in this micro-batch
        self.metrics: DefaultMetricGroup

    def add_input(self, index: int, process: Callable[[Any], object]) -> None:
        """Declare that ``process`` is the callback for each record of an input."""
        self._inputs[process] = index

    def run(self, callback: Callable[..., Any], *arguments: Any) -> bool:
        """Call ``callback`` until it succeeds or the policy gives up. Returns whether it succeeded.

        Raises:
            UserFunctionError: The policy does not cover the error, or a limit is exceeded.
        """
        attempt = 0
        while True:
            self._undo.begin()
            try:
                callback(*arguments)
            except UserFunctionError as failure:
                self._undo.undo()
                self._held.discard()
                if not self._repeats(failure, attempt):
                    self._give_up(failure, self._received(callback, arguments))
                    return False
                attempt += 1
            else:
                self._undo.commit()
                self._release()
                return True

    def run_once(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of ``callback``, which is not covered by the policy."""
        result = callback(*arguments)
        self._release()
        return result

    def begin_micro_batch(self) -> None:
        """Reset the count of failures of the micro-batch."""
        self._failures = 0

    def _repeats(self, failure: UserFunctionError, attempt: int) -> bool:
        error = failure.cause
        retry = None if error is None else self._policy.retry_for(error)
        if retry is None or attempt >= retry.times:
            return False
        self.metrics.counter("errors_retried").inc()
        if pause := retry.pause_ms(attempt):
            self._job.wait(timedelta(milliseconds=pause))
        return True

    def _received(self, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> Received | None:
        index = self._inputs.get(callback)
        return None if index is None else Received(index, arguments[0], self._current.timestamp)

    def _give_up(self, failure: UserFunctionError, received: Received | None) -> None:
        action = ErrorAction.FAIL if failure.cause is None else self._policy.action_for(failure.cause)
        if action is ErrorAction.FAIL:
            raise failure
        self.metrics.counter(_COUNTERS[action]).inc()
        self._failures += 1
        self._check_limits(failure)
        if action is ErrorAction.DEAD_LETTER:
            self._emit_letter(self._letter(failure), received)

    def _check_limits(self, failure: UserFunctionError) -> None:
        counters = self.metrics.counters
        total = sum(counters[name].count for name in _COUNTERS.values() if name in counters)
        policy = self._policy
        for count, limit, where in (
            (total, policy.max_failures, "in total"),
            (self._failures, policy.max_failures_per_micro_batch, "per micro-batch"),
        ):
            if limit is not None and count > limit:
                raise failure.with_note(
                    f"The error policy of the operator allows {limit} failures {where} in a subtask, and this is "
                    f"number {count}."
                ) from failure.cause

    def _letter(self, failure: UserFunctionError) -> DeadLetter[Any]:
        record, key = failure.failed or (None, None)
        return DeadLetter(
            operator=self._instance.operator.uid,
            subtask=self._instance.subtask,
            callback=failure.callback,
            key=None if key is NO_KEY else key,
            record=None if record is NO_RECORD else record,
            error_type=failure.cause_type,
            error_message=failure.cause_message,
            traceback=failure.traceback_text,
            location=failure.location,
            time=self._job.time.now_ms,
            position=failure.position,
        )

    def _release(self) -> None:
        try:
            self._held.release()
        except BaseException as error:
            # A watermark that violates the rules. Failures of functions downstream already describe themselves.
            self._instance.fail("emit_watermark", error)
