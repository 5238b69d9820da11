"""Error policies: what happens to a record whose callback raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Generic

from dsv2.base.record_position import RecordPosition
from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import as_milliseconds, is_number
from dsv2.errors import ConfigurationError, ContractError, ResourceError


class ErrorAction(Enum):
    """The treatment of a record or another element whose callback failed."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True)
class DeadLetter(Generic[T_co]):
    """A record or another element whose callback failed, in the stream ``result.dead_letters()``.

    Attributes:
        operator: The uid of the operator.
        subtask: The index of the subtask.
        callback: The method that raised.
        key: The current key, or None.
        record: The record, or None for other callbacks, such as those of timers.
        error_type: The class name of the exception.
        error_message: Its message.
        traceback: The user's frames in its traceback.
        location: The user's file and line that created the operator.
        time: The processing time of the micro-batch in ms since the epoch.
        position: Where the record is in its source, if this is known. None otherwise.
    """

    operator: str
    subtask: int
    callback: str
    key: object
    record: T_co | None
    error_type: str
    error_message: str
    traceback: str
    location: str
    time: int
    position: RecordPosition | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Repeat a callback up to ``times`` times, the first time after ``backoff_ms``, then twice as long each time."""

    errors: tuple[type[Exception], ...]
    times: int
    backoff_ms: int
    max_backoff_ms: int | None = None
    jitter: float = 0

    def pause_ms(self, attempt: int, random: Callable[[], float]) -> int:
        """Return the pause after an attempt, counted from 0, in ms. ``random`` returns a number from 0 up to 1."""
        pause = self.backoff_ms << attempt
        if self.max_backoff_ms is not None:
            pause = min(pause, self.max_backoff_ms)
        return pause - int(pause * self.jitter * random()) if self.jitter else pause


@dataclass(frozen=True, slots=True)
class _Rule:
    errors: tuple[type[Exception], ...]
    action: ErrorAction


@dataclass(frozen=True)
class ErrorPolicy:
    """Rules for callbacks that raise. Without rules the job fails.

    A policy is built by adding rules for exception classes. The first rule that matches applies::

        ErrorPolicy().retry(ConnectionError, times=3, backoff=timedelta(seconds=1)).skip(ValueError).dead_letter()

    A retried callback that still fails is treated by the other rules. A rule without classes applies to every
    ``Exception`` but ``ContractError``, which is a mistake in the program. Name its subclasses to include them, such as
    ``InvalidKeyError`` for records without a key. No rule applies to ``ResourceError``: without a model or client every
    record would be skipped, so the job fails.

    A callback that fails leaves nothing behind: its output and watermarks are discarded, and its timers and writes to
    declared state are undone. Fields of the function are not restored: change them last.
    """

    rules: tuple[_Rule, ...] = ()
    retries: tuple[Retry, ...] = ()
    max_failures: int | None = field(default=None)
    max_failures_per_micro_batch: int | None = field(default=None)

    def fail(self, *errors: type[Exception]) -> ErrorPolicy:
        """Fail the job for these exceptions."""
        return _with(self, ErrorAction.FAIL, errors)

    def skip(self, *errors: type[Exception]) -> ErrorPolicy:
        """Skip the record, timer, watermark or window, and count it in the metric ``errors_skipped``."""
        return _with(self, ErrorAction.SKIP, errors)

    def dead_letter(self, *errors: type[Exception]) -> ErrorPolicy:
        """Skip it likewise, and emit a ``DeadLetter`` to ``result.dead_letters()``."""
        return _with(self, ErrorAction.DEAD_LETTER, errors)

    def retry(
        self,
        *errors: type[Exception],
        times: int,
        backoff: timedelta = timedelta(0),
        max_backoff: timedelta | None = None,
        jitter: float = 0,
    ) -> ErrorPolicy:
        """Repeat the callback, because the error may be transient. Counted in the metric ``errors_retried``.

        While an async function waits, other records continue. Other functions wait with the whole micro-batch. To
        repeat a call because of its result, raise an exception of your own for that result.

        Args:
            errors: The exceptions.
            times: How often, at least 1.
            backoff: How long to wait before the first repetition. It doubles each time.
            max_backoff: The longest wait. None: there is no limit.
            jitter: The part of each wait that is random, from 0 to 1. A wait is shortened by up to this part, so that
                subtasks do not call a service at the same time.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        if not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= _MOST_RETRIES:
            raise ConfigurationError(f"retry: times must be a whole number from 1 to {_MOST_RETRIES}, not {times!r}.")
        if not is_number(jitter) or not 0 <= jitter <= 1:
            raise ConfigurationError(f"retry: jitter must be a number from 0 to 1, not {jitter!r}.")
        rule = Retry(
            _checked("retry", errors),
            times,
            as_milliseconds(backoff, "backoff", at_least=0),
            None if max_backoff is None else as_milliseconds(max_backoff, "max_backoff", at_least=0),
            jitter,
        )
        policy = _instance(self, "retry")
        _check_reachable("retry", rule.errors, [("retry", other.errors) for other in policy.retries])
        return replace(policy, retries=(*policy.retries, rule))

    def limit(self, *, total: int | None = None, per_micro_batch: int | None = None) -> ErrorPolicy:
        """Fail the job after more than so many skipped elements and dead letters.

        Args:
            total: In the life of the job, in all subtasks together. None: no limit.
            per_micro_batch: In one micro-batch (in BATCH mode there is only one) and subtask. None: no limit.

        Raises:
            ConfigurationError: A limit is not a whole number of at least 0.
        """
        for name, value in (("total", total), ("per_micro_batch", per_micro_batch)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ConfigurationError(f"limit: {name} must be a whole number of at least 0, not {value!r}.")
        return replace(_instance(self, "limit"), max_failures=total, max_failures_per_micro_batch=per_micro_batch)

    @property
    def handles_errors(self) -> bool:
        """True if some errors do not fail the job immediately."""
        return bool(self.retries) or any(rule.action is not ErrorAction.FAIL for rule in self.rules)

    @property
    def has_dead_letters(self) -> bool:
        """True if a rule emits dead letters."""
        return any(rule.action is ErrorAction.DEAD_LETTER for rule in self.rules)

    def action_for(self, error: BaseException) -> ErrorAction:
        """Return the treatment of an element whose callback raised ``error``."""
        return next((rule.action for rule in self.rules if _covers(rule.errors, error)), ErrorAction.FAIL)

    def retry_for(self, error: BaseException) -> Retry | None:
        """The rule for retries after ``error``, or None."""
        return next((retry for retry in self.retries if _covers(retry.errors, error)), None)


_MOST_RETRIES = 30


def _with(policy: ErrorPolicy, action: ErrorAction, errors: tuple[type[Exception], ...]) -> ErrorPolicy:
    policy = _instance(policy, action.value)
    rule = _Rule(_checked(action.value, errors), action)
    _check_reachable(action.value, rule.errors, [(other.action.value, other.errors) for other in policy.rules])
    return replace(policy, rules=(*policy.rules, rule))


def _instance(policy: ErrorPolicy, method: str) -> ErrorPolicy:
    """Refuse a call of the class, such as ``ErrorPolicy.skip(ValueError)``."""
    if not isinstance(policy, ErrorPolicy):
        raise ConfigurationError(f"Write ErrorPolicy().{method}(...), with parentheses after ErrorPolicy.")
    return policy


def _check_reachable(
    method: str, errors: tuple[type[Exception], ...], earlier: Sequence[tuple[str, tuple[type[Exception], ...]]]
) -> None:
    """Refuse a rule for a class that an earlier rule covers completely, so that it would never apply."""
    for other, covered in earlier:
        for error in errors or (Exception,):
            if issubclass(error, covered) if covered else not issubclass(error, ContractError):
                rules = [
                    f"{name}({', '.join(kind.__name__ for kind in kinds)})"
                    for name, kinds in ((method, errors), (other, covered))
                ]
                raise ConfigurationError(
                    f"{rules[0]} would never apply to {error.__name__}, because {rules[1]} is before it. Put rules for "
                    f"special errors first."
                )


def _checked(what: str, errors: Sequence[object]) -> tuple[type[Exception], ...]:
    checked = []
    for error in errors:
        if not isinstance(error, type) or not issubclass(error, Exception):
            raise ConfigurationError(f"{what} takes subclasses of Exception, not {error!r}.")
        if issubclass(error, ResourceError):
            raise ConfigurationError(
                f"{what}: {error.__name__} always fails the job, because every record would fail. Repeat transient "
                f"failures in the function that opens the resource."
            )
        checked.append(error)
    return tuple(checked)


def _covers(errors: tuple[type[Exception], ...], error: BaseException) -> bool:
    if isinstance(error, ResourceError):
        return False
    if errors:
        return isinstance(error, errors)
    return isinstance(error, Exception) and not isinstance(error, ContractError)
