"""What the channels have sent and the function has not seen yet, for the facts that invariants are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from tests.proofs.events import Frame, Record
from tests.proofs.rules import Status
from tests.support import ENDED, Signal

__all__ = ("SentByChannels",)


class _Channel(Protocol):
    unseen: list[Any]
    status: Status


C = TypeVar("C", bound=_Channel)


class SentByChannels(Generic[C]):
    """The elements of channels."""

    def __init__(self, channels: Sequence[C]) -> None:
        self._channels = channels

    def status(self, channel: int) -> Status:
        """Of ``channel``, which may have sent an end that is still held back."""
        one = self._channels[channel]
        return "ended" if ENDED in one.unseen else one.status

    def unseen(self, channel: int) -> int:
        """Number of elements that are held back."""
        return len(self._channels[channel].unseen)

    def sent(self, channel: int, owner: int, frame: Frame) -> list[Any]:
        """``channel``, which has the number ``owner`` in the job, sends a frame. Returns its elements, with records."""
        unseen = self._channels[channel].unseen
        for letter in frame:
            held = [element for element in unseen if isinstance(element, Record)]
            number = (held[-1].number + 1) % 8 if held else 0
            unseen.append(letter if isinstance(letter, Signal) else Record(owner, number))
        return unseen[len(unseen) - len(frame) :]
