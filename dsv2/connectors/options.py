"""Checking what connectors are told."""

from __future__ import annotations

from dsv2.errors import ConfigurationError

__all__ = ("check_at_least_one", "check_choice")


def check_choice(name: str, chosen: str, choices: tuple[str, ...]) -> None:
    """Raise ``ConfigurationError`` if ``chosen``, which the user gave as ``name``, is none of ``choices``."""
    if chosen not in choices:
        listed = " or ".join([", ".join(map(repr, choices[:-1])), repr(choices[-1])])
        raise ConfigurationError(f"{name} is {listed}, not {chosen!r}.")


def check_at_least_one(**numbers: int | None) -> None:
    """Raise ``ConfigurationError`` for the first of ``numbers`` that is less than 1; None will do."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {number}.")
