"""Pickling of what stays in a process."""

from __future__ import annotations

from typing import Any

from runtime_spark.platform.closures import from_bytes_with, to_bytes_without


def test_objects_that_stay_have_stand_ins() -> None:
    session, sink = object(), lambda: None

    def stand_in(value: Any) -> object | None:
        if value is session:
            return "session"
        return ("sink", 5) if value is sink else None

    data = to_bytes_without({"spark": session, "sinks": [sink], "f": lambda x: x + 1}, stand_in)
    found = from_bytes_with(data, lambda name: f"found {name}")
    assert (found["spark"], found["sinks"]) == ("found session", ["found ('sink', 5)"])
    assert found["f"](1) == 2
