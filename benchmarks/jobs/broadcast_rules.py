"""Broadcast rules: events are filtered by a rule of their category, and rules are broadcast to all subtasks.

There is one rule per 1,000 events. Each rule repeats the initial limit of its category with a new version, so that the
results do not depend on the order in which the two inputs are read. The work is that of changing rules.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.jobs.events import EventTuple

__all__ = ("CATEGORIES", "EVENTS_PER_RULE", "Rule", "category_of", "known_limit", "lets_through", "rule")

CATEGORIES = 10
EVENTS_PER_RULE = 1000


class Rule(NamedTuple):
    """A rule: events of ``category`` pass if their value is at least ``limit``."""

    category: int
    limit: int
    version: int


def rule(index: int) -> Rule:
    """Return rule number ``index``. The categories take turns."""
    category = index % CATEGORIES
    return Rule(category, known_limit(category), index)


def known_limit(category: int) -> int:
    """Return the initial limit of a category."""
    return category * 10


def category_of(event: EventTuple) -> int:
    """Return the category of an event."""
    return event[0] % CATEGORIES


def lets_through(limit: int, event: EventTuple) -> bool:
    """Return whether the event passes."""
    return event[2] >= limit
