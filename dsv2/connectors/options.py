"""Checks of the arguments of connectors."""

from __future__ import annotations

from dsv2.arguments import check_whole_number

__all__ = ("check_at_least_one",)


def check_at_least_one(**numbers: int | None) -> None:
    """Raise ``ConfigurationError`` for the first of ``numbers`` that is neither None nor an int of at least 1."""
    for name, number in numbers.items():
        if number is not None:
            check_whole_number(number, name)
