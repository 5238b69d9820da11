"""Conversion and checks of the arguments that users pass: durations, choices and whole numbers.

A duration is a ``timedelta`` in every public signature. A plain number of milliseconds is either a point in time since
the epoch (``timestamp``, ``now_ms``) or has a name that ends in ``_ms``. A choice is an ``Enum`` member or its
lower-case string value.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import TypeGuard, TypeVar

from dsv2.errors import ConfigurationError, Dsv2Error

E = TypeVar("E", bound=Enum)

_MILLISECOND = timedelta(milliseconds=1)


def as_milliseconds(
    duration: timedelta,
    parameter: str,
    *,
    at_least: int | None = None,
    error: type[Dsv2Error] = ConfigurationError,
) -> int:
    """Convert a duration that a user passed.

    Args:
        duration: A whole number of milliseconds.
        parameter: The name of the parameter, for the error message.
        at_least: The minimum in milliseconds. None also allows negative durations.
        error: The class of the error to raise.

    Raises:
        Dsv2Error: ``duration`` is not a ``timedelta``, is too small, or has a fraction of a millisecond. The class is
            ``error``.
    """
    if not isinstance(duration, timedelta):
        raise error(f"{parameter} must be a datetime.timedelta, such as timedelta(seconds=5), not {duration!r}.")
    milliseconds, rest = divmod(duration, _MILLISECOND)
    if rest and duration != timedelta.max:  # which is meant as "for ever"
        raise error(f"{parameter} must be a whole number of milliseconds, not {_shown(duration)}.")
    if at_least is not None and milliseconds < at_least:
        limit = f"at least {at_least} ms" if at_least else "0 or more"
        raise error(f"{parameter} must be {limit}, not {_shown(duration)}.")
    return milliseconds


def as_seconds(timeout: timedelta | None, parameter: str) -> float | None:
    """Convert a timeout to seconds; None means no limit.

    Raises:
        ConfigurationError: ``timeout`` is not a ``timedelta``, or is negative.
    """
    if timeout is None:
        return None
    if not isinstance(timeout, timedelta) or timeout < timedelta(0):
        raise ConfigurationError(f"{parameter} must be a datetime.timedelta of 0 or more, or None, not {timeout!r}.")
    return timeout.total_seconds()


def as_choice(kind: type[E], value: E | str, parameter: str, *, error: type[Dsv2Error] = ConfigurationError) -> E:
    """Convert a choice that a user passed.

    Args:
        kind: The enumeration.
        value: A member of ``kind``, or its string value.
        parameter: The name of the parameter, for the error message.
        error: The class of the error to raise.

    Raises:
        Dsv2Error: ``value`` is neither. The message lists the allowed values; the class is ``error``.
    """
    if isinstance(value, kind):
        return value
    members = {member.value: member for member in kind}
    if not isinstance(value, str) or value not in members:
        allowed = ", ".join(map(repr, members))
        raise error(f"{parameter} must be one of {allowed}, or a member of {kind.__name__}, not {value!r}.")
    return members[value]


def check_whole_number(value: int, parameter: str, *, at_least: int = 1) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is an int of at least ``at_least``. A bool is refused."""
    if not is_whole_number(value) or value < at_least:
        raise ConfigurationError(f"{parameter} must be a whole number of at least {at_least}, not {value!r}.")


def check_at_least_one(**numbers: int | None) -> None:
    """Raise ``ConfigurationError`` for the first of ``numbers`` that is neither None nor an int of at least 1."""
    for name, number in numbers.items():
        if number is not None:
            check_whole_number(number, name)


def is_whole_number(value: object) -> TypeGuard[int]:
    """Return whether ``value`` is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether ``value`` is an int or a float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(duration: timedelta) -> str:
    return f"{duration / _MILLISECOND:.12g} ms"
