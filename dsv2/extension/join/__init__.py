"""Joins of two keyed streams: over all time, in intervals of event time, in windows (FLIP-500, and what it lacks)."""

from dsv2.extension.join.api import interval_join, join, join_by_key, join_keyed, window_join
from dsv2.extension.join.functions import JoinFunction, Joining, JoinType, LateRecord

__all__ = (
    "JoinFunction",
    "JoinType",
    "Joining",
    "LateRecord",
    "interval_join",
    "join",
    "join_by_key",
    "join_keyed",
    "window_join",
)
