"""Joins of two keyed streams: over all time, and on event time (FLIP-500, and what Flink has not)."""

from dsv2.extension.join.api import interval_join, join, join_by_key, join_keyed
from dsv2.extension.join.functions import JoinFunction, Joining, JoinType
from dsv2.extension.join.interval import LateRecord

__all__ = ("JoinFunction", "JoinType", "Joining", "LateRecord", "interval_join", "join", "join_by_key", "join_keyed")
