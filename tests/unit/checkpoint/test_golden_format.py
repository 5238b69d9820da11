"""Checkpoints of this format version: the code writes the recorded bytes, and a job continues from them.

A change that fails here makes checkpoints unreadable, or needs a new format version: increase ``FORMAT_VERSION`` (or
``RECORD_VERSION``), and record it with ``./run python -m tests.golden_format``.
"""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from dsv2.checkpoint.description import describe
from dsv2.checkpoint.differences import differences
from dsv2.runtime.serde.codec import FORMAT_VERSION
from tests.golden_format import (
    FIRST,
    GOLDEN,
    SECOND,
    Content,
    after_restart,
    comparable,
    content,
    plan_of_job,
    planners,
    program_in,
)


@pytest.fixture(scope="module")
def recorded() -> Content:
    found: Content = json.loads((GOLDEN / f"format_{FORMAT_VERSION}.json").read_text())
    return found


def test_state_and_pages_are_the_recorded_bytes(recorded: Content) -> None:
    written = content()
    assert written["states"] == recorded["states"]
    assert written["pages"] == recorded["pages"]


def test_programs_and_offsets_match_the_recording(recorded: Content) -> None:
    written = content()
    assert comparable(written["program"]) == comparable(recorded["program"])
    assert written["offsets"] == recorded["offsets"]


def test_state_is_read(recorded: Content) -> None:
    kept, windows = after_restart(recorded)
    records, timers = kept[: len(SECOND)], kept[len(SECOND) :]
    assert [(record, total, notes) for record, total, notes, _ in records] == [
        (SECOND[0], 6, ["a", "b", "c"]),
        (SECOND[1], 7, ["a", "b", "c"]),
        (SECOND[2], 8, ["a", "b", "c", "d"]),
    ]
    assert [states for *_, states in records] == [
        (2, ["3", "6"], {"c": 2.5}, 10),
        (4, ["1", "4", "5", "7"], {"b": 2.75}, 11),
        (1, ["8"], {"d": 3.0}, 12),
    ]
    assert timers == [(100 * number, order.article) for number, order in enumerate((*FIRST, *SECOND), start=1)]
    assert sorted(windows) == [("a", [1]), ("b", [0, 3, 4, 11]), ("c", [2, 10]), ("d", [12])]


def test_program_is_read(recorded: Content) -> None:
    plan = plan_of_job()
    assert differences(program_in(recorded), describe(plan)) == []


def test_offsets_are_read(recorded: Content) -> None:
    for uid, planner in planners(plan_of_job()).items():
        offsets = recorded["offsets"][uid]
        for before, after in pairwise(offsets):
            assert json.loads(json.dumps(planner.latest(before, only_available=False))) == after
            assert planner.portions(before, after)
