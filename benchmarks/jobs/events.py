"""Events of users, one per millisecond, as tuples, dataclasses or dicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

__all__ = ("KINDS", "Event", "EventTuple", "Events", "Kind")

T = TypeVar("T")
_MULTIPLIER = 2_654_435_769

EventTuple: TypeAlias = tuple[int, int, int]
"""User, time in ms, value."""


@dataclass
class Event:
    """An event as a dataclass."""

    user: int
    time: int
    value: int


@dataclass(frozen=True)
class Kind(Generic[T]):
    """Functions that create records of a kind and read their fields. They are the user functions of the jobs."""

    make: Callable[[int, int, int], T]
    user: Callable[[T], int]
    time: Callable[[T], int]
    value: Callable[[T], int]


def _tuple(user: int, time: int, value: int) -> EventTuple:
    return user, time, value


def _dict(user: int, time: int, value: int) -> dict[str, int]:
    return {"user": user, "time": time, "value": value}


KINDS: dict[str, Kind[Any]] = {
    "tuple": Kind[EventTuple](_tuple, lambda event: event[0], lambda event: event[1], lambda event: event[2]),
    "dataclass": Kind[Event](Event, lambda event: event.user, lambda event: event.time, lambda event: event.value),
    "dict": Kind[dict[str, int]](
        _dict, lambda event: event["user"], lambda event: event["time"], lambda event: event["value"]
    ),
}


class Events:
    """Generates the event of an index, the same in every run. Users are distributed evenly; values are 0 to 99."""

    def __init__(self, users: int, kind: str) -> None:
        self.users = users
        self.make = KINDS[kind].make

    def __call__(self, index: int) -> Any:
        return self.make((index * _MULTIPLIER & 0xFFFF_FFFF) * self.users >> 32, index, index % 100)
