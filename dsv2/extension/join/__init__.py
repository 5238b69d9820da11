"""Joins of two keyed streams (FLIP-500, FLIP-326), and of a stream with a service."""

from dsv2.extension.join.api import join
from dsv2.extension.join.declared import Left, Right
from dsv2.extension.join.functions import (
    JoinFunction,
    Joining,
    JoinType,
    LateRecord,
    PairTimes,
    TimedJoinFunction,
    WindowJoinFunction,
)
from dsv2.extension.join.lookup import LookupCache, lookup_join
from dsv2.extension.join.modes import JoinMode, OnSnapshotTimeout

__all__ = (
    "JoinFunction",
    "JoinMode",
    "JoinType",
    "Joining",
    "LateRecord",
    "Left",
    "LookupCache",
    "OnSnapshotTimeout",
    "PairTimes",
    "Right",
    "TimedJoinFunction",
    "WindowJoinFunction",
    "join",
    "lookup_join",
)
