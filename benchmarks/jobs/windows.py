"""Tumbling event-time windows: the sum of the values of each user in each window.

There is one event per millisecond, and a window covers half a batch. So two windows fire per batch, each with sums for
most users.
"""

from __future__ import annotations

from benchmarks.jobs.events import EventTuple
from benchmarks.peers.protocol import Task

__all__ = ("add", "size", "time_of", "user_of")


def user_of(event: EventTuple) -> int:
    """Return the key."""
    return event[0]


def time_of(event: EventTuple) -> int:
    """Return the event time."""
    return event[1]


def add(first: EventTuple, second: EventTuple) -> EventTuple:
    """Add up two events of one user."""
    return first[0], second[1], first[2] + second[2]


def size(task: Task) -> int:
    """Return the size of a window, in ms."""
    return task.records // 2
