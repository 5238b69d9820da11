"""The control elements of an edge, which all of its channels carry.

In a frame they are one column of atoms, each of which MessagePack writes in a few bytes: the number of elements,
whether their values are differences, the number of identifiers, these; then for all elements the positions, the kinds
with the number of the identifier, and the values. Positions are differences. Values are too if all are integers,
because the watermarks of a channel mostly rise in small steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import sub
from typing import Any, Final, TypeAlias

from dsv2.errors import CorruptDataError

WATERMARK: Final = 0
STATUS: Final = 1
END: Final = 2
START: Final = 3  # opens a subtask even if it never receives a record

Control: TypeAlias = tuple[int, int, str, Any]
"""(position: the number of records before it, kind, watermark identifier, watermark value or idle flag)

The value is of the type that the watermark is declared with, and therefore data that a ``Codec`` encodes.
"""


class ControlLog:
    """The control elements that an edge has sent since its channels were last flushed.

    A channel without buffered records only remembers how much of the log it has sent. So most control elements are
    stored once for all channels, and channels that send the same ones share a list.
    """

    __slots__ = ("_controls", "_last_only", "_shared")

    def __init__(self, last_only: frozenset[str] = frozenset()) -> None:
        """``last_only``: See ``Edge``."""
        self._last_only = last_only
        self._controls: list[Control] = []
        self._shared: dict[int, list[Control]] = {}

    def __len__(self) -> int:
        return len(self._controls)

    def add(self, kind: int, identifier: str, value: Any) -> None:
        """Add an element."""
        self._controls.append((0, kind, identifier, value))
        self._shared.clear()

    def since(self, begin: int) -> list[Control]:
        """Return the elements from number ``begin`` on, all at position 0. The list must not be changed."""
        shared = self._shared.get(begin)
        if shared is None:
            shared = self._shared[begin] = self.without_superseded(self._controls[begin:])
        return shared

    def without_superseded(self, controls: list[Control]) -> list[Control]:
        """Return ``controls`` of a channel without values that a later one at the same position supersedes."""
        if not self._last_only or len(controls) < 2:
            return controls
        position, later = -1, set[str]()
        kept: list[Control] = []
        for control in reversed(controls):
            if control[0] != position:
                position = control[0]
                later.clear()
            if control[1] == WATERMARK and (identifier := control[2]) in self._last_only:
                if identifier in later:
                    continue
                later.add(identifier)
            kept.append(control)
        kept.reverse()
        return kept

    def clear(self) -> None:
        """Remove all elements, after every channel has sent them."""
        self._controls.clear()
        self._shared.clear()


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
