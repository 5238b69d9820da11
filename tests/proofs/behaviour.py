"""Functions that hold back watermarks or emit their own."""

from __future__ import annotations

from typing import Any, NamedTuple

from dsv2.runtime.exchange.control_log import WATERMARK
from tests.support import Signal, watermark

OWN = "own"
"""The identifier of the watermark that a function emits for records."""
ECHO = "echo"
"""The identifier of the watermark that it emits for watermarks."""


class Behaviour(NamedTuple):
    """The behaviour of a function.

    Attributes:
        polled: The values of watermarks that it takes over (POLL), so that they are not forwarded.
        before: The values of ``OWN`` that it emits before it passes on a record.
        after: Those that it emits after that.
        echoes: Whether it emits ``ECHO`` with the value of each watermark that it handles.
        hears: Whether it receives watermarks. If not, they are addressed to others, and pass it.
    """

    polled: frozenset[Any] = frozenset()
    before: tuple[Any, ...] = ()
    after: tuple[Any, ...] = ()
    echoes: bool = False
    hears: bool = True

    def for_record(self, record: Any) -> list[Any]:
        """Return the elements that it sends for a record."""
        return [*_own(self.before), record, *_own(self.after)]

    def for_watermark(self, value: Any) -> list[Any]:
        """Return the elements that it sends for a watermark, without the watermark itself."""
        return [watermark(value, ECHO)] if self.echoes else []

    def for_element(self, element: Any) -> list[Any]:
        """Return what an operator with one channel sends for an element, unless it is a watermark without effect."""
        if not isinstance(element, Signal):
            return self.for_record(element)
        if element.kind != WATERMARK:
            return [element]
        return [*self.for_watermark(element.value), *([] if element.value in self.polled else [element])]


AGREES = Behaviour()
"""It passes on records, and agrees to watermarks."""


def _own(values: tuple[Any, ...]) -> list[Any]:
    return [watermark(value, OWN) for value in values]
