"""Broadcast rules: events are let through by a rule of their category, and rules are told to all subtasks anew.

There is a rule for each 1,000 events. A rule says again what was known from the beginning, with a version of its own,
so that the results are the same whichever of two inputs is read first; the work is that of rules that change.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.jobs.events import EventTuple

__all__ = ("CATEGORIES", "EVENTS_PER_RULE", "Rule", "category_of", "known_limit", "lets_through", "rule")

CATEGORIES = 10
EVENTS_PER_RULE = 1000


class Rule(NamedTuple):
    """Events of ``category`` need a value of at least ``limit``."""

    category: int
    limit: int
    version: int


def rule(index: int) -> Rule:
    """Rule number ``index``: of one category after the other."""
    category = index % CATEGORIES
    return Rule(category, known_limit(category), index)


def known_limit(category: int) -> int:
    """What is known of a category from the beginning."""
    return category * 10


def category_of(event: EventTuple) -> int:
    """Which rule is for the event."""
    return event[0] % CATEGORIES


def lets_through(limit: int, event: EventTuple) -> bool:
    """The rule."""
    return event[2] >= limit
