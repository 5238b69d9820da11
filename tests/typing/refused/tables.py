"""Mistakes with changing tables."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

from dsv2.aggregates import Count
from dsv2.model import Change
from dsv2.sinks import Sink
from dsv2.streams import ConfiguredStream
from dsv2.tables import Table
from tests.typing.given import Given


class Days(NamedTuple):
    """A result."""

    days: int


def month_of(day: date) -> int:
    return day.month


def name_of(day: date) -> str:
    return day.isoformat()


def text(day: date, number: int) -> str:
    return f"{day} {number}"


def into(g: Given, changes: ConfiguredStream[Change[date]]) -> None:
    Table.from_upserts(g.non_keyed, month_of)  # E: arg-type
    Table.from_upserts(g.other_non_keyed, month_of, is_deletion=len)  # E: arg-type
    Table.from_changes(g.other_non_keyed, month_of)  # E: arg-type
    Table.from_changes(changes, len)  # E: arg-type
    Table.from_row_changes(changes, month_of)  # E: arg-type


def operators(days: Table[int, date], numbers: Table[int, int], sink: Sink[date]) -> None:
    days.where(len)  # E: arg-type
    days.map(date.isoformat, key=month_of)  # E: misc
    days.join(numbers, text, on=name_of, key=len)  # E: arg-type
    days.join(numbers, text, on=month_of, key=len, join_type="left")  # E: call-overload
    days.join(numbers, text, on=month_of, key=len, join_type="outer")  # E: call-overload
    days.suppress(timedelta(1), time_type="wall")  # E: arg-type
    days.group_by(len)  # E: arg-type
    days.group_by(month_of).aggregate(Days, days=Count("days").field)  # E: arg-type
    days.changes().to_sink(sink)  # E: arg-type
    days.with_uid("days")  # E: attr-defined
