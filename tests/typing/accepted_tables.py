"""The types of changing tables. Checked by ``test_typing.py``, never run."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple, assert_type

from dsv2.aggregates import Count, Key
from dsv2.connectors.postgres import RowChange
from dsv2.model import Change
from dsv2.sinks import Sink
from dsv2.streams import ConfiguredStream
from dsv2.tables import ConfiguredTable, Table, no_key
from tests.typing.given import Given


class Days(NamedTuple):
    """A result."""

    month: int
    days: int


def month_of(day: date) -> int:
    return day.month


def year_if_known(day: date) -> int | None:
    return day.year


def text(day: date, number: int | None) -> str:
    return f"{day} {number}"


def texts(day: date | None, number: int | None) -> str:
    return f"{day} {number}"


def tables(g: Given, changes: ConfiguredStream[Change[date]], rows: ConfiguredStream[RowChange[date]]) -> None:
    days = Table.from_upserts(g.other_non_keyed, month_of, is_deletion=lambda day: day.year > 2000)
    assert_type(days.with_uid("days"), ConfiguredTable[int, date])
    assert_type(Table.from_changes(changes, month_of), Table[int, date])
    assert_type(Table.from_row_changes(rows, month_of), ConfiguredTable[int, date])
    assert_type(days.where(lambda day: day.year > 2000), ConfiguredTable[int, date])
    assert_type(days.map(date.isoformat, key=len), ConfiguredTable[int, str])
    assert_type(days.map(date.isoformat, key=no_key), ConfiguredTable[None, str])
    assert_type(days.suppress(timedelta(seconds=1), time_type="event").with_name("late"), ConfiguredTable[int, date])
    assert_type(days.changes(), ConfiguredStream[Change[date]])
    assert_type(days.upserts(), ConfiguredStream[Change[date]])
    assert_type(days.latest(), ConfiguredStream[date])


def joins(days: Table[int, date], numbers: Table[int, int]) -> None:
    assert_type(days.join(numbers, text, on=year_if_known, key=len), ConfiguredTable[int, str])
    assert_type(days.join(numbers, text, on=month_of, key=len, join_type="left"), ConfiguredTable[int, str])
    assert_type(days.join(numbers, texts, on=month_of, key=hash, join_type="full"), ConfiguredTable[int, str])
    assert_type(days.join(numbers, texts, on=month_of, key=str.upper, join_type="right"), ConfiguredTable[str, str])
    assert_type(
        days.join(numbers, lambda day, number: day, on=month_of, key=month_of, join_type="anti"),
        ConfiguredTable[int, date],
    )


def aggregates(days: Table[str, date], sink: Sink[Change[Days]]) -> None:
    months = days.group_by(month_of).aggregate(Days, month=Key(), days=Count())
    assert_type(months, ConfiguredTable[int, Days])
    months.changes().to_sink(sink)
