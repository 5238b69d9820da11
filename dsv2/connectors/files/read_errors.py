"""Parts of files that cannot be read. The error policy of the source applies to them, as to values for ``decode``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from dsv2.base.record_position import Offset
from dsv2.base.type_variables import T
from dsv2.sources import SplitBatch


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Is among the values of a file in the place of a value that cannot be read.

    Attributes:
        raw: What a dead letter has as its record: the line, or the path of the file.
        reason: What is wrong.
    """

    raw: object
    reason: str

    def fail(self) -> NoReturn:
        """Raise the error."""
        raise ValueError(self.reason)


def split_batch(values: Sequence[Any], decode: Callable[[Any], T] | None, offsets: Sequence[Offset]) -> SplitBatch[T]:
    """Return a batch of ``values``. Decoding fails for those that are ``Unreadable``."""
    if Unreadable not in set(map(type, values)):
        return SplitBatch(values, decode, offsets=lambda: offsets)

    def decoded(value: Any) -> Any:
        if type(value) is Unreadable:
            value.fail()
        return value if decode is None else decode(value)

    def raw(value: Any) -> object:
        return value.raw if type(value) is Unreadable else value

    return SplitBatch(values, decoded, offsets=lambda: offsets, raw=raw)


def unreadable_again(raw: object) -> SplitBatch[Any]:
    """Return a batch for the dead letter of something ``Unreadable``: no program can decode it."""
    return split_batch([Unreadable(raw, "It cannot be read, as before. Write it correctly into a new file")], None, [0])
