"""The trigger *available now* with a Spark that does not announce it to sources in Python."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from runtime_spark.platform.available_now import at_end_of_input, is_announced
from tests.durations import LONG


@dataclass
class Session:
    version: str


@dataclass
class Query:
    error: Exception | None = None
    name: str = "test"
    read: threading.Event = field(default_factory=threading.Event)

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        assert self.read.wait(LONG)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(("version", "announced"), [("4.1.4", False), ("4.2.0", True), ("4.3.0-vendor", True)])
def test_spark_announces_the_trigger_since_4_2(version: str, announced: bool) -> None:
    assert is_announced(cast(Any, Session(version))) is announced


@pytest.mark.parametrize("error", [None, RuntimeError("the query has failed")])
def test_query_is_ended_after_all_input(error: Exception | None) -> None:
    query, ended = Query(error), threading.Event()
    at_end_of_input(cast(Any, query), ended.set)
    assert not ended.is_set()
    query.read.set()
    assert ended.wait(LONG)
