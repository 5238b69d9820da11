"""The events that a channel may send, and the printed form of a sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from dsv2.runtime.exchange.control_log import END, STATUS, WATERMARK
from tests.support import ACTIVE, ENDED, IDLE, Signal, watermark

RECORD = "record"
"""Stands for a record, which gets its number when it is sent."""
TICK = "tick"
"""The first event of a frame that is sent after the clock has moved by ``TICK_MS``."""
Letter: TypeAlias = str | Signal
Frame: TypeAlias = tuple[Letter, ...]


class Record(NamedTuple):
    """A record as it is sent. ``number``: distinguishes it from the records of the channel that are held back."""

    channel: int
    number: int


class Step(NamedTuple):
    """A channel sends a frame."""

    channel: int
    frame: Frame


def letters(values: Iterable[tuple[str, Any]], *, idle: bool = True) -> list[Letter]:
    """The events of a channel: a record, a watermark with each of ``values`` (identifier, value), its status, its end.

    ``idle``: Whether its status may change.
    """
    status = [IDLE, ACTIVE] if idle else []
    return [RECORD, *(watermark(value, identifier) for identifier, value in values), *status, ENDED]


def frames_of(events: Sequence[Letter], longest: int) -> list[Frame]:
    """All frames of one to ``longest`` events. Nothing follows an end."""
    return [
        frame for length in range(1, longest + 1) for frame in product(events, repeat=length) if ENDED not in frame[:-1]
    ]


def frame_of(elements: Iterable[Any]) -> Frame:
    """The events of ``elements``: the inverse of numbering the records."""
    return tuple(RECORD if isinstance(element, Record) else element for element in elements)


def with_ticks(frames: Sequence[Frame]) -> list[Frame]:
    """``frames``, each of them after the clock has moved, and the move without a frame."""
    return [*frames, (TICK,), *((TICK, *frame) for frame in frames)]


def shown_letter(letter: Any) -> str:
    """An event in readable form."""
    if not isinstance(letter, Signal):
        return str(letter)
    match letter.kind:
        case kind if kind == WATERMARK:
            return f"{letter.identifier}={letter.value}"
        case kind if kind == STATUS:
            return "idle" if letter.value else "active"
        case kind if kind == END:
            return "end"
    return str(letter)


def shown(path: Iterable[Step]) -> str:
    """The steps in readable form, one a line."""
    return "\n".join(f"  {number}. {_shown_step(channel, frame)}" for number, (channel, frame) in enumerate(path, 1))


def _shown_step(channel: int, frame: Frame) -> str:
    if frame == (TICK,):
        return "the clock moves"
    if frame[0] == TICK:
        return f"the clock moves, and {_shown_step(channel, frame[1:])}"
    return f"channel {channel} sends {', '.join(map(shown_letter, frame))}"
