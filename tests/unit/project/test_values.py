"""The matrix of awkward values and ways: no way changes a value without an error, and the page says what each keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.values.awkward import VALUES
from tests.values.matrix import recorded
from tests.values.page import PAGE, tables
from tests.values.same import equal, exact


@pytest.mark.parametrize(
    ("zone", "seed"), [("America/New_York", "1"), pytest.param("UTC", "0", marks=pytest.mark.nightly)]
)
def test_values_arrive_or_are_refused(zone: str, seed: str) -> None:
    environment = {**os.environ, "TZ": zone, "PYTHONHASHSEED": seed}
    run = subprocess.run(
        [sys.executable, "-m", "tests.values.matrix"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["wrong"] == []
    assert {way: signs for way, signs in result["signs"].items() if differs(recorded()[way], signs)} == {}
    assert set(result["signs"]) == set(recorded())


def differs(before: str, after: str) -> bool:
    """Return whether signs differ. An explained other value may depend on the time zone."""
    return any(one != other for one, other in zip(before, after, strict=True) if one != "*")


def test_page_shows_what_was_recorded() -> None:
    assert tables() in PAGE.read_text(), "Run: ./run python -m tests.values.matrix --record"


def test_comparison_knows_different_values() -> None:
    confused = [
        (one, other)
        for first, (_, one) in enumerate(VALUES)
        for _, other in VALUES[:first]
        if exact(one, other) and (type(one), repr_of(one)) != (type(other), repr_of(other))
    ]
    assert confused == []
    assert all(exact(value, value) and equal(value, value) for _, value in VALUES)


def repr_of(value: object) -> str:
    return hex(value) if type(value) is int else repr(value)
