"""Control elements of a frame as one column of atoms, which MessagePack writes in a few bytes for each element.

The column is: the number of elements, whether their values are differences, the number of identifiers, these; then for
all elements the positions, the kinds with the number of the identifier, and the values. Positions are differences.
Values are too if all of them are integers, because the watermarks of a channel mostly rise in small steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import sub
from typing import Any

from dsv2.errors import CorruptDataError
from dsv2.runtime.exchange.control_log import Control

_KINDS = 4


def pack_controls(controls: Sequence[Control]) -> list[Any]:
    """Return ``controls`` as a column for ``Codec.seal_columns``."""
    if not controls:
        return []
    positions, kinds, identifiers, values = zip(*controls, strict=True)
    numbers = {identifier: _KINDS * number for number, identifier in enumerate(dict.fromkeys(identifiers))}
    codes = [kind + numbers[identifier] for kind, identifier in zip(kinds, identifiers, strict=True)]
    by_difference = set(map(type, values)) == {int}
    if by_difference:
        values = _differences(values)
    return [len(controls), by_difference, len(numbers), *numbers, *_differences(positions), *codes, *values]


def unpack_controls(column: Sequence[Any], owner: str) -> list[Control]:
    """Return the elements of a column of ``pack_controls``. Raises ``CorruptDataError``, naming ``owner``."""
    if not len(column):
        return []
    try:
        count, by_difference, different, *rest = column
        identifiers, positions = rest[:different], rest[different : different + count]
        codes, values = rest[different + count : different + 2 * count], rest[different + 2 * count :]
        elements = zip(
            accumulate(positions),
            (code % _KINDS for code in codes),
            (identifiers[code // _KINDS] for code in codes),
            accumulate(values) if by_difference else values,
            strict=True,
        )
        return list(elements)
    except (IndexError, TypeError, ValueError) as error:
        raise CorruptDataError(f"{owner}: the control elements are damaged.") from error


def _differences(numbers: Sequence[int]) -> tuple[int, ...]:
    return (numbers[0], *map(sub, numbers[1:], numbers))
