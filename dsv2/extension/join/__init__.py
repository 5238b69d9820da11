"""Joins of two keyed streams: unbounded, interval, window and processing-time temporal joins (FLIP-500, FLIP-326)."""

from dsv2.extension.join.api import (
    interval_join,
    join,
    join_by_key,
    join_keyed,
    processing_time_temporal_join,
    window_join,
)
from dsv2.extension.join.functions import JoinFunction, Joining, JoinType, LateRecord
from dsv2.extension.join.temporal import OnSnapshotTimeout

__all__ = (
    "JoinFunction",
    "JoinType",
    "Joining",
    "LateRecord",
    "OnSnapshotTimeout",
    "interval_join",
    "join",
    "join_by_key",
    "join_keyed",
    "processing_time_temporal_join",
    "window_join",
)
