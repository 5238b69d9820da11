"""Sets of letters stay small: what belongs to them completely becomes a range."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dsv2.base.folders import LocalFolder
from dsv2.dead_letters.letter_ids import LetterIds, batch_of, compacted
from dsv2.dead_letters.replay import Replays
from dsv2.dead_letters.store import JobLetters

BATCHES = {0: ["0.0.a"], 2: ["2.0.a", "2.1.b"], 5: ["5.0.a"], 9: ["9.0.a", "9.1.b", "9.2.c"]}
ALL = [letter for letters in BATCHES.values() for letter in letters]


def small(entries: list[str]) -> list[str]:
    return compacted(entries, BATCHES, BATCHES.__getitem__)


def test_everything_becomes_one_range() -> None:
    assert small(ALL) == ["0-9"]


def test_letters_of_other_micro_batches_stay() -> None:
    assert small(["0.0.a", "2.1.b", "5.0.a", "7.0.x"]) == ["0-0", "5-5", "2.1.b", "7.0.x"]
    assert small(["0-2", "3-3", "7.0.x"]) == ["0-2", "3-3", "7.0.x"], "nothing is known of what is between them"


@given(st.lists(st.lists(st.sampled_from(ALL), unique=True), max_size=4))
def test_set_stays_the_same(rounds: list[list[str]]) -> None:
    entries: list[str] = []
    for letters in rounds:
        entries = small([*entries, *(letter for letter in letters if letter not in LetterIds(entries))])
    added = {letter for letters in rounds for letter in letters}
    found = LetterIds(entries)
    assert {letter for letter in ALL if letter in found} == added
    incomplete = {batch for batch, letters in BATCHES.items() if 0 < len(added & set(letters)) < len(letters)}
    assert {batch_of(entry) for entry in entries if "-" not in entry} == incomplete
    assert all((entry in LetterIds(["0-9"])) for entry in entries)


def test_fulfilled_requests_are_forgotten(tmp_path: Path) -> None:
    letters = JobLetters(LocalFolder(str(tmp_path)), "job")
    fulfilled, impossible = letters.request(["3.0.a"]), letters.request(["3.1.b"])
    done = Replays([fulfilled, impossible, "withdrawn"], ["3.0.a"])
    assert done.compacted(letters) == Replays([impossible], ["3.0.a"])
