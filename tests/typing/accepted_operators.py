"""The types of resources and of the operators in ``dsv2.operators``. Checked by ``test_typing.py``, never run."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import assert_type

from dsv2 import Resource


def load(path: str) -> date:
    return date.fromisoformat(path)


def resources() -> None:
    assert_type(Resource(date.today), Resource[date])
    assert_type(Resource(partial(load, "2024-01-01"), close=date.isoformat).get(), date)
    assert_type(Resource(lambda: load("2024-01-01")).get(), date)
