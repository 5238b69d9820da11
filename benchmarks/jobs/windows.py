"""Tumbling windows in event time: the sum of the values of each user in each window.

There is an event each millisecond and a window is as long as half a batch, so a batch closes two windows, each with a
sum for most of the users.
"""

from __future__ import annotations

from benchmarks.jobs.events import EventTuple
from benchmarks.peers.protocol import Task

__all__ = ("add", "size", "time_of", "user_of")


def user_of(event: EventTuple) -> int:
    """The key."""
    return event[0]


def time_of(event: EventTuple) -> int:
    """Event time."""
    return event[1]


def add(first: EventTuple, second: EventTuple) -> EventTuple:
    """The sum of two events of one user."""
    return first[0], second[1], first[2] + second[2]


def size(task: Task) -> int:
    """Of a window, in ms."""
    return task.records // 2
