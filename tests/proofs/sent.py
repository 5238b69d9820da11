"""The elements that channels have sent and the function has not seen yet, for the facts of invariants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from tests.proofs.events import Frame, Record
from tests.proofs.rules import Status
from tests.support import ENDED, Signal

Arriving: TypeAlias = Callable[[Any], Sequence[Any]]
"""The elements that arrive at the watching function because of an element of a channel."""


def as_sent(element: Any) -> Sequence[Any]:
    """The element itself arrives."""
    return (element,)


class _Channel(Protocol):
    unseen: list[Any]
    status: Status


C = TypeVar("C", bound=_Channel)


class SentByChannels(Generic[C]):
    """The elements of channels."""

    def __init__(self, channels: Sequence[C], arriving: Arriving = as_sent) -> None:
        self._channels = channels
        self._arriving = arriving

    def status(self, channel: int) -> Status:
        """Of ``channel``, which may have sent an end that is still held back."""
        one = self._channels[channel]
        return "ended" if ENDED in one.unseen else one.status

    def unseen(self, channel: int) -> int:
        """Number of elements that are held back."""
        return len(self._channels[channel].unseen)

    def sent(self, channel: int, owner: int, frame: Frame) -> list[Any]:
        """``channel``, which has the number ``owner`` in the job, sends a frame. Returns its elements, with records."""
        held = [element for element in self._channels[channel].unseen if isinstance(element, Record)]
        number = (held[-1].number + 1) % 8 if held else 0
        elements: list[Any] = []
        for letter in frame:
            is_record = not isinstance(letter, Signal)
            elements.append(Record(owner, number) if is_record else letter)
            number = (number + is_record) % 8
        self.receive(channel, elements)
        return elements

    def receive(self, channel: int, elements: Sequence[Any]) -> None:
        """``channel`` sends ``elements``, with the numbers that ``sent`` has given to records."""
        self._channels[channel].unseen += [one for element in elements for one in self._arriving(element)]
