"""Mistakes with resources and the operators in ``dsv2.operators``."""

from __future__ import annotations

from datetime import date

from dsv2 import Resource


def resources() -> None:
    Resource(date.today())  # E: arg-type
    Resource(date.today, close=len)  # E: misc
    Resource(date.today, date.isoformat)  # E: call-arg
    Resource(date.today).get().decode()  # E: attr-defined
