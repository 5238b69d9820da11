"""Attempts to run a callback under an error policy: all of its effects happen, or none of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NoReturn, TypeAlias

from dsv2.errors import UserFunctionError
from dsv2.model.error_policy import DeadLetter, ErrorPolicy
from dsv2.runtime.exchange.collector import CurrentTimestamp, HeldOutput
from dsv2.runtime.operator.function_instance import FunctionInstance
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.report.letter_buffer import Received
from dsv2.runtime.report.metrics import DefaultMetricGroup
from dsv2.runtime.report.policy_rules import SKIPPED_COUNTERS, PolicyRules
from dsv2.runtime.state.undo import UndoLog

EmitLetter: TypeAlias = Callable[[DeadLetter[Any], Received | None], object]
"""Called with each dead letter, and the record that can be processed again, if there is one."""


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
        self._instance = instance
        random = Random(f"{instance.operator.uid}/{instance.subtask}")  # a repeated task waits as long
        self.rules = PolicyRules(
            policy, instance.operator, instance.subtask, lambda: job.time.now_ms, self._count, self._total, random
        )
        self._job = job
        self._undo = undo
        self._held = held
        self.emit_letter = emit_letter
        self._current = current
        self._inputs: dict[Callable[..., Any], int] = {}
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
                if (pause := self.rules.pause_before_retry(failure, attempt)) is None:
                    if (letter := self.rules.give_up(failure)) is not None:
                        self.emit_letter(letter, self._received(callback, arguments))
                    return False
                if pause:
                    self._job.wait(pause)
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
        self.rules.begin_micro_batch()

    def _received(self, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> Received | None:
        index = self._inputs.get(callback)
        return None if index is None else Received(index, arguments[0], self._current.timestamp)

    def _count(self, name: str) -> None:
        self.metrics.counter(name).inc()

    def _total(self, _: int) -> int:
        counters = self.metrics.counters
        return sum(counters[name].count for name in SKIPPED_COUNTERS if name in counters)

    def fail_emission(self, error: BaseException) -> NoReturn:
        """Raise the error that the user sees for one that a held emission raised."""
        # A watermark that violates the rules. Failures of functions downstream already describe themselves.
        self._instance.fail("emit_watermark", error)

    def _release(self) -> None:
        try:
            self._held.release()
        except BaseException as error:
            self.fail_emission(error)
