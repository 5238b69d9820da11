"""Values of watermarks as reports, logs and pages show them: numbers, booleans and texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, Final, TypeAlias, cast

ShownValue: TypeAlias = int | float | bool | str
"""A value that JSON can represent. The values of one watermark are either all texts, or all are not."""

_MOST_CHARACTERS: Final = 200


def shown_value(value: object) -> ShownValue:
    """Return numbers and booleans as they are, and other values as a text of at most some hundred characters."""
    if isinstance(value, int | float):
        return value
    try:
        text = _text(value)
    except Exception as error:  # repr may be code of the program, and refuses whole numbers of thousands of digits
        text = f"<{type(value).__qualname__} whose __repr__ raised {type(error).__qualname__}>"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def least_shown(values: Iterable[ShownValue]) -> ShownValue:
    """Return the least of the values of a watermark. There must be at least one."""
    return cast(ShownValue, min(cast(Iterable[Any], values)))


def greatest_shown(values: Iterable[ShownValue]) -> ShownValue:
    """Return the greatest of the values of a watermark. There must be at least one."""
    return cast(ShownValue, max(cast(Iterable[Any], values)))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Set):
        return f"{{{', '.join(sorted(map(str, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {number}' for name, number in value.items())}}}"
    return repr(value)
