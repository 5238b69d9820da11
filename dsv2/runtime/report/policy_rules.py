"""Applies the error policy of one operator in one subtask: retries, counts, limits and dead letters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from dsv2.errors import UserFunctionError
from dsv2.graph import Operator
from dsv2.model.error_policy import DeadLetter, ErrorAction, ErrorPolicy
from dsv2.runtime.report.failure import NO_KEY, NO_RECORD

_RETRIED = "errors_retried"
_COUNTERS = {ErrorAction.SKIP: "errors_skipped", ErrorAction.DEAD_LETTER: "errors_dead_lettered"}
SKIPPED_COUNTERS = tuple(_COUNTERS.values())
"""The counters of skipped elements and dead letters, to which ``ErrorPolicy.limit`` applies."""


class PolicyRules:
    """Decides about each failure of ``operator`` in ``subtask``.

    Args:
        policy: The policy.
        operator: The operator.
        subtask: The index of the subtask.
        now_ms: Returns the processing time of the micro-batch in ms.
        count: Increments a counter of the operator.
        total: Returns the number of skipped elements and dead letters in all micro-batches, from that in this one.
        random: Chooses the jitter of waits.
    """

    def __init__(
        self,
        policy: ErrorPolicy,
        operator: Operator,
        subtask: int,
        now_ms: Callable[[], int],
        count: Callable[[str], None],
        total: Callable[[int], int],
        random: Random,
    ) -> None:
        self._policy = policy
        self._operator = operator
        self._subtask = subtask
        self._now_ms = now_ms
        self._count = count
        self._total = total
        self._random = random
        self._failures = 0  # in this micro-batch

    @property
    def failures(self) -> int:
        """The number of skipped elements and dead letters in this micro-batch."""
        return self._failures

    def begin_micro_batch(self) -> None:
        """Reset the count of failures of the micro-batch."""
        self._failures = 0

    def pause_before_retry(self, failure: UserFunctionError, attempt: int) -> timedelta | None:
        """Return the pause before a failed callback is repeated; None if the policy does not repeat it.

        ``attempt``: The number of the attempt that failed, from 0.
        """
        error = failure.cause
        retry = None if error is None else self._policy.retry_for(error)
        if retry is None or attempt >= retry.times:
            return None
        self._count(_RETRIED)
        return timedelta(milliseconds=retry.pause_ms(attempt, self._random.random))

    def covers(self, failure: UserFunctionError) -> bool:
        """Return whether the policy skips an element that fails like this."""
        return failure.cause is not None and self._policy.action_for(failure.cause) is not ErrorAction.FAIL

    def give_up(self, failure: UserFunctionError) -> DeadLetter[Any] | None:
        """Skip what failed. Returns the dead letter, if the policy asks for one.

        Raises:
            UserFunctionError: The policy does not cover the error, or a limit is exceeded.
        """
        if failure.cause is None or (action := self._policy.action_for(failure.cause)) is ErrorAction.FAIL:
            raise failure from failure.cause
        self._count(_COUNTERS[action])
        self._failures += 1
        self._check_limits(failure)
        return self._letter(failure) if action is ErrorAction.DEAD_LETTER else None

    def _check_limits(self, failure: UserFunctionError) -> None:
        policy = self._policy
        for count, limit, where in (
            (self._total(self._failures), policy.max_failures, "in total"),
            (self._failures, policy.max_failures_per_micro_batch, "per micro-batch in a subtask"),
        ):
            if limit is not None and count > limit:
                raise failure.beyond_limit(
                    f"The error policy of the operator allows {limit} failures {where}, and this is number {count}."
                ) from failure.cause

    def _letter(self, failure: UserFunctionError) -> DeadLetter[Any]:
        record, key = failure.failed or (None, None)
        return DeadLetter(
            operator=self._operator.uid,
            subtask=self._subtask,
            callback=failure.callback,
            key=None if key is NO_KEY else key,
            record=None if record is NO_RECORD else record,
            error_type=failure.cause_type,
            error_message=failure.cause_message,
            traceback=failure.traceback_text,
            location=failure.location,
            time=self._now_ms(),
            position=failure.position,
        )
