"""Restarts of a failed job from its checkpoint, in the same process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dsv2.checks.arguments import as_milliseconds, check_whole_number
from dsv2.errors import (
    ContractError,
    CorruptDataError,
    Dsv2Error,
    IncompatibleCheckpointError,
    PlanError,
    UserFunctionError,
    WorkerLostError,
)

_PERMANENT = (PlanError, ContractError, IncompatibleCheckpointError, CorruptDataError)
"""Errors that the same program would have again."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The restarts of a job that fails, each from its last checkpoint. Pass it as ``LocalRuntime(restarts=...)``.

    A job fails if a function, a source or a sink raises an error that no error policy handles. Mistakes in the program
    and damaged or incompatible checkpoints are not followed by a restart.

    Args:
        attempts: The most restarts within the time ``within``. When the job fails once more, it ends with that error.
        delay: The wait before the first of them. It doubles each time.
        max_delay: The longest wait.
        within: The time. With 10 minutes, a job that fails once an hour is restarted for ever.

    Raises:
        ConfigurationError: ``attempts`` is not a whole number of at least 1, or a duration is out of range.

    Source: Flink ``restart-strategy``: ``failure-rate`` and ``exponential-delay``.
    """

    attempts: int = 3
    delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(minutes=1)
    within: timedelta = timedelta(minutes=10)

    def __post_init__(self) -> None:
        check_whole_number(self.attempts, "attempts")
        as_milliseconds(self.delay, "delay", at_least=0)
        as_milliseconds(self.max_delay, "max_delay", at_least=0)
        as_milliseconds(self.within, "within", at_least=1)

    def __str__(self) -> str:
        return f"{self.attempts} within {self.within}, after {self.delay} to {self.max_delay}"


LOST_WORKERS: Final = RestartPolicy(delay=timedelta(milliseconds=100))
"""The restarts after worker processes have died, unless a job has a policy of its own."""


class Restarts:
    """The restarts of one job so far.

    Args:
        policy: The restarts after failures. None: there are none.
        lost: The restarts after worker processes have died, without ``policy``. None: there are none.
    """

    def __init__(self, policy: RestartPolicy | None, lost: RestartPolicy | None = None) -> None:
        self._policy = policy
        self._lost = lost
        self._times_ms: list[int] = []
        self.count = 0
        """The number of restarts."""

    @property
    def are_enabled(self) -> bool:
        """True if the job may be restarted."""
        return self._policy is not None

    def delay_ms(self, error: Dsv2Error, now_ms: int) -> int | None:
        """Return how long the job waits before it is restarted after ``error``; None: it is not restarted."""
        policy = self._policy or (self._lost if isinstance(error, WorkerLostError) else None)
        if policy is None or is_permanent(error):
            return None
        begin_ms = now_ms - as_milliseconds(policy.within, "within")
        self._times_ms = [time_ms for time_ms in self._times_ms if time_ms > begin_ms]
        recent = len(self._times_ms)
        if recent >= policy.attempts:
            return None
        self._times_ms.append(now_ms)
        self.count += 1
        delay_ms, longest_ms = (as_milliseconds(one, "delay") for one in (policy.delay, policy.max_delay))
        return min(delay_ms << recent, longest_ms)


def is_permanent(error: Dsv2Error) -> bool:
    """Return whether the same program would fail with ``error`` again."""
    cause = error.cause if isinstance(error, UserFunctionError) else error.__cause__
    return isinstance(error, _PERMANENT) or isinstance(cause, _PERMANENT)
