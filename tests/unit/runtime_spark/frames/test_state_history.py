"""State names its checkpoint and micro-batch. State that does not match the checkpoint is refused, naming both."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.base.folders import Folder, LocalFolder
from dsv2.errors import CorruptDataError
from dsv2.graph import Plan
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink
from runtime_spark.frames.state_history import JOURNAL_LENGTH, StateHistory, StateLedger, StateSeal, Written
from tests.support import one_input

ID, OTHER = UUID(int=1), UUID(int=2)
PLACE = ("f", 1)
STATE = memoryview(b"some state")


class Places:
    """A journal in memory."""

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}

    def get(self, place: int) -> int | None:
        return self.kept.get(place)

    def put(self, place: int, batch_id: int) -> None:
        assert 0 <= place < JOURNAL_LENGTH
        self.kept[place] = batch_id


def seal(
    batch_id: int, first: int = 0, written: int | None = None, journal: Places | None = None, checkpoint: UUID = ID
) -> StateSeal:
    return StateSeal(StateHistory(checkpoint, first, {PLACE: written}), PLACE, "F, subtask 1", batch_id, journal)


def written_in(batch_id: int, checkpoint: UUID = ID) -> bytearray:
    return seal(batch_id, checkpoint=checkpoint).close(bytearray(STATE))


def test_state_of_the_expected_micro_batch_is_accepted() -> None:
    assert seal(7, first=7, written=6).open(written_in(6)) == STATE
    assert seal(7, first=7, written=2).open(written_in(2)) == STATE
    assert seal(9, first=7, written=2).open(written_in(2)) == STATE  # not called in batches 7 and 8
    assert seal(9, first=7, written=2).open(written_in(7)) == STATE  # of this run
    assert seal(0).open(None) is None


@pytest.mark.parametrize(
    ("kept", "expected", "said"),
    [
        (5, 6, "was last written in micro-batch 5, but micro-batch 7 of the checkpoint continues from state that was "
               "last written in micro-batch 6."),
        (6, 5, "was last written in micro-batch 6, but micro-batch 7 .* was last written in micro-batch 5."),
        (None, 6, "was never written, but micro-batch 7 of the checkpoint .* was last written in micro-batch 6."),
        (3, None, "was last written in micro-batch 3, but micro-batch 7 of the checkpoint .* was never written."),
        (8, 6, "is newer than the offsets: micro-batch 8 wrote it, but micro-batch 7 is about to run."),
        (7, 6, "is newer than the offsets: micro-batch 7 wrote it, but micro-batch 7 is about to run."),
    ],
)  # fmt: skip
def test_state_of_another_micro_batch_is_refused(kept: int | None, expected: int | None, said: str) -> None:
    with pytest.raises(CorruptDataError, match=f"State of F, subtask 1 {said}"):
        seal(7, first=7, written=expected).open(None if kept is None else written_in(kept))


def test_state_of_another_checkpoint_is_refused() -> None:
    with pytest.raises(CorruptDataError) as refused:
        seal(7, first=7, written=6).open(written_in(6, checkpoint=OTHER))
    assert f"belongs to another checkpoint: its checkpoint is {OTHER}, and this one is {ID}." in str(refused.value)


def test_damaged_state_is_refused() -> None:
    whole = seal(6, journal=Places()).close(bytearray(STATE))
    for place in range(len(whole) - len(STATE)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        with pytest.raises(CorruptDataError, match="State of F, subtask 1"):
            seal(7, first=7, written=6).open(bytes(damaged))
    for length in range(len(whole) - len(STATE)):
        with pytest.raises(CorruptDataError, match="State of F, subtask 1"):
            seal(7, first=7, written=6).open(whole[:length])


def run_of(batches: list[int]) -> tuple[bytearray, Places]:
    """The state of a slot with pages after the micro-batches."""
    journal, kept = Places(), None
    for batch_id in batches:
        one = seal(batch_id, journal=journal)
        one.open(kept)
        kept = one.close(bytearray(STATE))
    assert kept is not None
    return kept, journal


@pytest.mark.parametrize("batches", [[0], [0, 1, 2], [0, 3, 35, 36], [*range(100)], [*range(0, 300, 7)]])
def test_complete_pages_are_accepted(batches: list[int]) -> None:
    kept, journal = run_of(batches)
    assert seal(batches[-1] + 1, first=batches[-1] + 1, written=batches[-1], journal=journal).open(kept) == STATE


@pytest.mark.parametrize("lost", range(100 - JOURNAL_LENGTH, 99))
def test_pages_with_a_missing_micro_batch_are_refused(lost: int) -> None:
    """Its changes were replaced by those of another batch. Those of the last batch are present."""
    kept, journal = run_of([*range(100)])
    journal.kept[lost % JOURNAL_LENGTH] = lost - JOURNAL_LENGTH
    with pytest.raises(CorruptDataError, match=f"that micro-batch {lost} wrote to the state store are missing"):
        seal(100, first=100, written=99, journal=journal).open(kept)


def test_query_not_started_by_dsv2_is_not_checked() -> None:
    own = StateSeal(None, PLACE, "F, subtask 1", 3, None)
    assert own.open(written_in(9, checkpoint=OTHER)) == STATE


# --- The driver's ledger ----------------------------------------------------------------------------------------------


def signing(batch_id: int, key: bytes | None = b"key", place: tuple[str, int] = PLACE) -> StateSeal:
    history = StateHistory(ID, 0, {place: None})
    return StateSeal(history, place, "F, subtask 1", batch_id, None, key)


def test_signature_covers_state_subtask_and_micro_batch() -> None:
    state = Codec(TypeRegistry(), b"key").seal(BlobKind.STATE, "some state")
    signed = signing(3).close(bytearray(state))
    assert signing(4).open(signed) == memoryview(state)
    other = Codec(TypeRegistry(), b"key").seal(BlobKind.STATE, "more state")
    older = signing(2).close(bytearray(state))
    for bytes_, opener in (
        (signed[: -len(state)] + other, signing(4)),
        (older[:28] + signed[28:], signing(4)),
        (signed, signing(4, place=("f", 2))),
        (signed, signing(4, b"other key")),
        (signed, signing(4, None)),
        (signing(3, None).close(bytearray(state)), signing(4)),
    ):
        with pytest.raises(CorruptDataError, match=r"signature does not match|is (not )?signed|header does not match"):
            opener.open(bytes_)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return LocalFolder(str(tmp_path))


@pytest.fixture
def plan() -> Plan:
    env = ExecutionEnvironment.get_instance("local")
    numbers = env.from_collection([1])
    numbers.key_by(str).process(one_input()).with_uid("f").with_parallelism(2).to_sink(CollectSink())
    numbers.global_().process(one_input()).with_uid("g").to_sink(CollectSink())
    return env.build_plan()


ALL = {("f", 0), ("f", 1), ("g", 0)}


def everywhere(batch_id: int | None) -> Written:
    return dict.fromkeys(ALL, batch_id)


def test_batches_that_call_all_subtasks_need_no_entry(folder: Folder, plan: Plan) -> None:
    ledger = StateLedger(folder, plan, 0, 100)
    assert ledger.written == everywhere(None)
    for batch_id in range(5):
        ledger.add(batch_id, ALL | {("a source", 3)})
    assert folder.sizes() == {}
    assert StateLedger(folder, plan, 5, 100).written == everywhere(4)


def test_other_batches_have_an_entry_to_continue_from(folder: Folder, plan: Plan) -> None:
    ledger = StateLedger(folder, plan, 0, 100)
    for batch_id, called in enumerate([ALL, {("f", 0)}, {("g", 0)}, ALL, {("f", 1)}]):
        ledger.add(batch_id, called)
    assert folder.numbers("dsv2/states", suffix=".json") == [1, 2, 4]
    written = [StateLedger(folder, plan, first, 100).written for first in range(6)]
    assert [[by[place] for place in sorted(ALL)] for by in written] == [
        [None, None, None], [0, 0, 0], [1, 0, 0], [1, 0, 2], [3, 3, 3], [3, 4, 3],
    ]  # fmt: skip


def test_repeated_micro_batch_replaces_its_entry(folder: Folder, plan: Plan) -> None:
    for called, entries in (({("f", 0)}, [1]), ({("f", 0), ("g", 0)}, [1]), (ALL, [])):
        ledger = StateLedger(folder, plan, 1, 100)
        ledger.add(1, called)
        assert folder.numbers("dsv2/states", suffix=".json") == entries
        assert StateLedger(folder, plan, 2, 100).written == everywhere(0) | dict.fromkeys(called, 1)


def test_entries_are_removed_with_sparks_log(folder: Folder, plan: Plan) -> None:
    ledger = StateLedger(folder, plan, 0, 10)
    ledger.add(0, ALL)
    for batch_id in range(1, 50):
        ledger.add(batch_id, {("f", 0)})
    assert folder.numbers("dsv2/states", suffix=".json") == [*range(39, 50)]


@pytest.mark.parametrize(
    "text", ["", "{", "7", "{}", '{"written": {"f": [1], "g": [2]}}', '{"written": {"f": [1, "x"], "g": [2]}}']
)
def test_damaged_entry_is_named(folder: Folder, plan: Plan, text: str) -> None:
    folder.write("dsv2/states/4.json", text.encode())
    with pytest.raises(CorruptDataError, match=rf"{folder.path}/dsv2/states/4\.json is damaged: .* from a backup"):
        StateLedger(folder, plan, 5, 100)
    assert StateLedger(folder, plan, 4, 100).written == everywhere(3)


def test_entries_are_readable_json(folder: Folder, plan: Plan) -> None:
    ledger = StateLedger(folder, plan, 3, 100)
    ledger.add(3, {("f", 1)})
    assert json.loads(folder.read("dsv2/states/3.json") or b"")["written"] == {"f": [2, 3], "g": [2]}
