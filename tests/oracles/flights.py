"""Expected results of the flight examples, computed in pandas from the tables."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from examples.nyc_tables import flights, planes, weather

HOUR = 3_600_000  # milliseconds
DAY = 24 * HOUR
OFFSET = 5 * HOUR
OUT_OF_ORDER = 2 * HOUR
YEAR = range(1_356_998_400_000 + OFFSET, 1_356_998_400_000 + OFFSET + 365 * DAY)
"""2013 in New York, in ms since 1970."""


def scheduled_flights(span: range) -> pd.DataFrame:
    """The flights of ``span`` in the order of their schedule, with the schedule in ms since 1970."""
    hour = pd.to_datetime(flights["time_hour"], utc=True).astype("int64") // 1_000_000
    table = flights.assign(scheduled=hour + flights["minute"] * 60_000)
    table = table[table["scheduled"].between(span.start, span.stop, inclusive="left")]
    ordered: pd.DataFrame = table.sort_values("scheduled", kind="stable", ignore_index=True)
    return ordered


def daily_delays(span: range) -> tuple[dict[tuple[str, int], tuple[int, int, int]], pd.DataFrame]:
    """By carrier and start of the day: flights, total delay, worst delay. And the flights that were late.

    A flight is late if an earlier departure was scheduled long enough after the end of its day. ``span``: scheduled
    times.
    """
    table = scheduled_flights(span).dropna(subset="dep_delay")
    takeoff = table["scheduled"] + table["dep_delay"].astype("int64") * 60_000
    table = table.iloc[takeoff.argsort(kind="stable")]
    day = (table["scheduled"] - OFFSET) // DAY * DAY + OFFSET
    latest_before = table["scheduled"].cummax().shift(fill_value=0)
    too_late = day + DAY - 1 <= latest_before - OUT_OF_ORDER - 1
    in_time = table[~too_late]
    groups = in_time["dep_delay"].astype("int64").groupby([in_time["carrier"], day[~too_late]])
    statistics = groups.agg(["count", "sum", "max"])
    return {key: tuple(row) for key, row in zip(statistics.index, statistics.to_numpy().tolist(), strict=True)}, table[
        too_late
    ]


def reports_by_day(span: range) -> dict[tuple[str, str], tuple[int, int, int]]:
    """By date and carrier: flights, cancelled flights, total delay. ``span``: scheduled times."""
    table = scheduled_flights(span)
    day = pd.to_datetime(table["scheduled"] - OFFSET, unit="ms").dt.strftime("%Y-%m-%d")
    groups = table.groupby([day, table["carrier"]])["dep_delay"]
    return {
        (str(day), str(carrier)): (len(delays), int(delays.isna().sum()), int(delays.sum()))
        for (day, carrier), delays in groups
    }


def delays_by_visibility(span: range) -> dict[tuple[str, str], tuple[int, int, int]]:
    """By airport and visibility: flights, cancelled flights, total delay. ``span``: scheduled times."""
    observed = weather[["origin", "time_hour", "visib"]]
    table = scheduled_flights(span).merge(observed, on=["origin", "time_hour"], how="left", validate="many_to_one")
    bounds = [float("-inf"), 2, 10, float("inf")]
    sight = pd.cut(table["visib"], bounds, right=False, labels=["below 2 miles", "2 to 9 miles", "clear"])
    table["sight"] = sight.cat.add_categories("not observed").fillna("not observed").astype(str)
    groups = table.groupby(["origin", "sight"])["dep_delay"]
    return {
        (str(origin), str(sight)): (len(delays), int(delays.isna().sum()), int(delays.sum()))
        for (origin, sight), delays in groups
    }


class Tables(NamedTuple):
    """The seats of planes by tail number, and the latest weather observation by airport."""

    seats: dict[str | None, int]
    observed: dict[str, int]


def planes_and_weather() -> tuple[Tables, Tables]:
    """The tables of the flight-tables example, at the start and after all changes."""
    seats: dict[str | None, int] = {
        str(tail): int(number) for tail, number in zip(planes["tailnum"], planes["seats"], strict=True)
    }
    hour = pd.to_datetime(weather["time_hour"], utc=True).astype("int64") // 1_000_000
    observed = pd.DataFrame({"origin": weather["origin"], "hour": hour}).sort_values("hour", kind="stable")
    half = observed.iloc[: len(observed) // 2]
    later = dict(seats)
    tails = sorted(planes["tailnum"])
    for step in range(3):
        for tail in tails[step::3][:50]:
            later[tail] += 1000
        for tail in tails[step::3][50:55]:
            del later[tail]
    return Tables(seats, _latest(half)), Tables(later, _latest(observed))


def _latest(observed: pd.DataFrame) -> dict[str, int]:
    return {str(origin): int(hour) for origin, hour in observed.groupby("origin")["hour"].max().items()}
