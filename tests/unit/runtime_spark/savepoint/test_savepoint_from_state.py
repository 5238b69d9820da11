"""The stored state of slots as the rows of a savepoint, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.tables import COLUMNS
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclarations
from runtime_spark.frames.state_history import JOURNAL, StateHistory, StateSeal
from runtime_spark.savepoint.state_entries import BLOB, EXPECTED, IN_JOURNAL, PAGE
from runtime_spark.savepoint.state_rows import RowMaker
from tests.support import Driver, KeptEntries, local_environment

CHECKPOINT, SLOT, PLACE = UUID(int=1), 5, ("f", 0)
COUNT = StateDeclarations.value_state("count", int, default=0)
KEYS = range(100)  # several pages

Entry = tuple[int, int, str | None, int | None, bytes | None]


class Counting(OneInputStreamProcessFunction[int, int]):
    def uses_states(self) -> Any:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        ctx.state_manager.get_state(COUNT).update(record)


class Journal:
    def __init__(self) -> None:
        self.places: dict[int, int] = {}

    def get(self, place: int) -> int | None:
        return self.places.get(place)

    def put(self, place: int, batch_id: int) -> None:
        self.places[place] = batch_id


def stored(*, in_map: bool, batch_id: int = 3) -> tuple[list[Entry], list[tuple[str, StateRow]]]:
    """The entries of a slot that micro-batch ``batch_id`` wrote, and its rows."""
    env = local_environment()
    stream = env.from_collection(list[int](), "in").key_by(abs)
    stream.process(Counting()).with_uid("f").to_sink(CollectSink()).with_uid("out")
    kept = KeptEntries() if in_map else None
    driver = Driver(env.build_plan(), "f", entries=kept).open()
    driver.send(*KEYS)
    rows, journal = driver.rows(), Journal()
    history = StateHistory(CHECKPOINT, batch_id, {PLACE: None})
    seal = StateSeal(history, PLACE, "f", batch_id, journal if in_map else None)
    seal.open(None)
    sealed = bytes(seal.close(driver.subtask.snapshot_in_place()))
    entries: list[Entry] = [(SLOT, EXPECTED, None, None, None), (SLOT, BLOB, None, None, sealed)]
    if kept is not None:
        entries += [(SLOT, PAGE, name, number, data) for (name, number), data in kept.kept.items()]
        places = journal.places.items()
        entries += [(SLOT, IN_JOURNAL, JOURNAL, place, batch.to_bytes(8, "little")) for place, batch in places]
    return sorted(entries, key=lambda entry: (entry[1], entry[2] or "", entry[3] or 0)), rows


def read(entries: Iterable[Entry], *, in_map: bool, written: int | None = 3, last: int = 3) -> list[tuple[Any, ...]]:
    """The rows that a task makes, if ``written`` is the last micro-batch that wrote the slot."""
    make = RowMaker({SLOT: PLACE}, StateHistory(CHECKPOINT, last + 1, {PLACE: written}), in_map, None)
    names = ["slot", "kind", "map", "number", "data"]
    types = [pa.int32(), pa.int32(), pa.string(), pa.int64(), pa.binary()]
    columns = zip(*entries, strict=True)
    batch = pa.RecordBatch.from_arrays([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names)
    found: list[tuple[Any, ...]] = []
    for made in make([batch]):
        assert made.schema.names == ["uid", *COLUMNS]
        found += zip(*(column.to_pylist() for column in made.columns), strict=True)
    return found


@pytest.mark.parametrize("in_map", [False, True])
def test_rows_are_those_of_the_subtask(in_map: bool) -> None:
    entries, rows = stored(in_map=in_map)
    found = read(entries, in_map=in_map)
    assert sorted(found, key=repr) == sorted(((uid, *row) for uid, row in rows), key=repr)
    assert len([row for row in found if row[2] == RowKind.KEYED]) == len(KEYS)


def test_slot_without_state_has_no_rows() -> None:
    assert read([(SLOT, EXPECTED, None, None, None)], in_map=True, written=None) == []


def without(place: Callable[[Entry], bool]) -> Callable[[list[Entry]], list[Entry]]:
    return lambda entries: [entry for entry in entries if not place(entry)]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without(lambda entry: entry[1] != EXPECTED), "was never written, but micro-batch 4"),
        (without(lambda entry: entry[2:4] == ("f/keys", 2)), "f/keys has 3 pages instead of 4"),
        (without(lambda entry: entry[1] == IN_JOURNAL), "micro-batch 3 wrote to the state store are missing"),
        (lambda entries: [(7, *entry[1:]) for entry in entries], "slot 7, which the job does not have"),
        (lambda entries: [*entries[:-1], (*entries[-1][:4], b"?")], "page 3 of f/keys: 1 bytes are too few"),
    ],
)
def test_incomplete_state_is_refused(damage: Callable[[list[Entry]], list[Entry]], message: str) -> None:
    entries, _ = stored(in_map=True)
    with pytest.raises(Exception, match=message):
        read(damage(entries), in_map=True)


@pytest.mark.parametrize(("written", "last"), [(2, 3), (4, 4), (3, 2)])
def test_state_of_another_micro_batch_is_refused(written: int, last: int) -> None:
    entries, _ = stored(in_map=False)
    with pytest.raises(Exception, match="micro-batch"):
        read(entries, in_map=False, written=written, last=last)
