"""Keyed state in columns of this format version: the code writes the recorded bytes, and a job continues from them.

A change that fails here makes checkpoints unreadable, or needs a new format version: increase ``FORMAT_VERSION``, and
record it with ``./run python -m tests.golden_format`` and ``./run python -m tests.golden_columns``.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Any

import numpy as np
import pytest

from dsv2.arrow.keyed import page_format, table
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.differences import differences
from dsv2.runtime.state import page_store
from tests.golden_columns import FILE, Report, Running, Window, after_restart, content, plan_of_job
from tests.golden_format import Content, comparable, program_in


@pytest.fixture(scope="module")
def recorded() -> Content:
    found: Content = json.loads(FILE.read_text())
    return found


def bytes_of(found: Content) -> Any:
    return found["states"], found["pages"], found["digests of many pages"]


def test_states_and_pages_are_the_recorded_bytes(recorded: Content) -> None:
    assert bytes_of(content()) == bytes_of(recorded)
    assert sum(name == "keep/columns/keyed/seen" for name, *_ in recorded["digests of many pages"]) > 2


@pytest.mark.parametrize(
    ("module", "name", "other"),
    [
        (page_format, "_LEAST", Struct(">q")),
        (page_format, "_WIDTHS", ((2, np.uint16), *page_format._WIDTHS[1:])),
        (page_format, "_LIMITS", page_format._LIMITS // np.uint64(2)),
        (page_store, "ROWS_PER_PAGE", 128),
        (table, "_MIXER", np.uint64(3)),
    ],
)
def test_other_encodings_are_found(
    recorded: Content, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, other: Any
) -> None:
    monkeypatch.setattr(module, name, other)
    assert bytes_of(content()) != bytes_of(recorded)


def test_program_matches_the_recording(recorded: Content) -> None:
    assert comparable(content()["program"]) == comparable(recorded["program"])
    assert differences(program_in(recorded), describe(plan_of_job())) == []


def test_state_is_read(recorded: Content) -> None:
    after = after_restart(recorded)
    reports = [one for one in after.kept if isinstance(one, Report)]
    known = [one for one in reports if one.what.startswith("[")]
    timers = [one for one in reports if not one.what.startswith("[")]
    assert after.in_blob == after.kept
    assert known == [
        Report(
            "tea",
            "[True, 0, 300000, None, 'teatea', b'tea', datetime.date(1969, 12, 30), "
            "datetime.datetime(2024, 1, 1, 0, 0, 0, 300), Decimal('37.500000000000000000'), [], ['tea', 'ß']]",
            303,
        ),
        Report(
            "milk",
            "[True, 4, 1125899906842624000, None, 'milkmilk', b'milk', datetime.date(1970, 1, 3), "
            "datetime.datetime(2024, 1, 1, 0, 0, 0, 624), Decimal('78.000000000000000000'), [], ['milk', 'ß']]",
            1 << 50,
        ),
        Report("new", str([None] * 11), None),
    ]
    assert [(one.article, one.number) for one in timers if one.what == "event"] == [
        *(("tea", 110), ("milk", 125), ("", 140), ("tea", 155), ("käse", 160), ("tea", 175))
    ]
    assert sorted(one.article for one in timers if one.what == "processing") == ["", "käse", "milk", "new", "tea"]
    assert after.running == [
        Running("tea", 1, 2, 2.0, 0.5),
        Running("milk", 2, 1, 2.0, None),
        Running("new", 1, 1, 5.0, 2.0),
    ]
    assert sorted(one for one in after.windows if isinstance(one, Window)) == [
        Window(-(1 << 40), 1 << 50, float(1 << 50), None),
        Window(1, 70_004, 70_004 / 3, 1e300),
        Window(2, 2, 2.0, None),
        Window(2, 293, 146.5, -0.0),
    ]
