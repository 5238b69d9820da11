"""Converts stored state to the rows of a savepoint, in tasks. A task holds one blob, and one page at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from dsv2.arrow.keyed.snapshots import stored_columns
from dsv2.errors import CorruptDataError
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.placeholders import StandIns
from dsv2.runtime.state.rows import StateRow, StoredState, rows_of
from dsv2.savepoint.tables import COLUMNS
from runtime_spark.checkpoint.generation import Generation
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.session import settings
from runtime_spark.frames.state_history import StateHistory, StateSeal
from runtime_spark.frames.state_key import StateKey
from runtime_spark.savepoint.state_entries import BLOB, IN_JOURNAL, PAGE

ROWS_SCHEMA = "uid string, subtask int, kind string, state string, key_bytes binary, value_bytes binary"
_ARROW_SCHEMA = pa.schema(
    [("uid", pa.string()), *zip(COLUMNS, (pa.int32(), pa.string(), pa.string(), pa.binary(), pa.binary()), strict=True)]
)
_ROWS_PER_BATCH = 4096
_ENTRIES_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BLOBS, _PAGES = 4, 256  # that a task has in memory


class _Entry(NamedTuple):
    slot: int
    kind: int
    map: str | None
    number: int | None
    data: bytes | None


class _Journal:
    """The journal of a slot, read before its blob."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}

    def add(self, place: int, data: bytes) -> None:
        self._places[place] = int.from_bytes(data, "little")

    def get(self, place: int) -> int | None:
        return self._places.get(place)

    def put(self, place: int, batch_id: int) -> None:
        raise NotImplementedError("a savepoint does not write state")  # pragma: no cover - required by the protocol


@dataclass(frozen=True)
class RowMaker:
    """Makes rows from the entries of slots. Sent to the tasks.

    Attributes:
        addresses: The uid of the head of the chain and the subtask, by slot.
        history: The state as of the micro-batch of the savepoint.
        in_map: Whether pages are entries of their own.
        state_key: The key that signed the state.
    """

    addresses: Mapping[int, tuple[str, int]]
    history: StateHistory
    in_map: bool
    state_key: StateKey | None

    @classmethod
    def of(cls, generation: Generation, state_key: StateKey | None) -> RowMaker:
        """Return one for the state of a generation."""
        layout = generation.stored.layout
        return cls(layout.addresses, generation.history, layout.has_pages, state_key)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for ``mapInArrow``, over the entries of ``state_entries``."""
        with marked_failures():
            yield from to_row_batches(self._rows(_entries(batches)))

    def _rows(self, entries: Iterator[_Entry]) -> Iterator[tuple[str, StateRow]]:
        codec = Codec(StandIns(), None if self.state_key is None else self.state_key.value)
        for slot, of_slot in groupby(entries, itemgetter(0)):
            if slot not in self.addresses:
                raise CorruptDataError(f"The checkpoint holds state of the slot {slot}, which the job does not have.")
            yield from _SlotReader(self, codec, *self.addresses[slot]).rows(of_slot)


class _SlotReader:
    """Reads the entries of one slot."""

    def __init__(self, maker: RowMaker, codec: Codec, uid: str, subtask: int) -> None:
        self._codec = codec
        self._subtask = subtask
        self._owner = f"State of {uid}, subtask {subtask}"
        self._journal = _Journal()
        key = None if maker.state_key is None else maker.state_key.value
        journal = self._journal if maker.in_map else None
        self._seal = StateSeal(
            maker.history, (uid, subtask), f"{uid}, subtask {subtask}", maker.history.first_batch, journal, key
        )
        self._in_map = maker.in_map

    def rows(self, entries: Iterable[_Entry]) -> Iterator[tuple[str, StateRow]]:
        """Return the rows of the slot, each with the uid of its operator."""
        state: StoredState | None = None
        pages = Counter[str]()
        blob: memoryview | None = None
        for entry in entries:
            if entry.kind == IN_JOURNAL:
                assert entry.number is not None
                assert entry.data is not None
                self._journal.add(entry.number, entry.data)
            elif entry.kind == BLOB:
                blob = self._seal.open(entry.data)
                assert blob is not None
                if not self._in_map:
                    yield from rows_of(blob, self._subtask, self._codec, self._owner, stored_columns)
                    return
                state = StoredState(blob, self._subtask, self._codec, self._owner, stored_columns)
                yield from state.rows()
            elif entry.kind == PAGE and state is not None and entry.map in state.pages:
                pages[entry.map] += 1
                yield from state.page_rows(entry.map, self._payload(entry))
        if blob is None:
            self._seal.open(None)
        if state is not None:
            self._check_complete(state, pages)

    def _payload(self, entry: _Entry) -> bytes:
        assert entry.data is not None
        return self._codec.unwrap(BlobKind.PAGE, entry.data, f"{self._owner}, page {entry.number} of {entry.map}")

    def _check_complete(self, state: StoredState, found: Mapping[str, int]) -> None:
        for name, pages in state.pages.items():
            if found.get(name, 0) != pages.number:
                raise CorruptDataError(
                    f"{self._owner}: {name} has {found.get(name, 0)} pages instead of {pages.number}."
                )


def to_row_batches(rows: Iterable[tuple[str, StateRow]]) -> Iterator[pa.RecordBatch]:
    """Return rows and their uids as Arrow batches of ``ROWS_SCHEMA``."""
    left = iter(rows)
    while some := list(islice(left, _ROWS_PER_BATCH)):
        columns = zip(*((uid, *row) for uid, row in some), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW_SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)


def persisted_rows(rows: DataFrame, generation: Generation) -> DataFrame:
    """Return rows made by a ``RowMaker``, among others, after they have been made and persisted."""
    persisted = rows.persist(StorageLevel.MEMORY_AND_DISK)
    at_once = _PAGES if generation.stored.layout.has_pages else _BLOBS
    try:
        with settings(rows.sparkSession, {_ENTRIES_AT_ONCE: str(at_once)}):
            persisted.count()
    except BaseException:
        persisted.unpersist()
        raise
    return persisted


def local_rows(spark: SparkSession, rows: Iterable[tuple[str, StateRow]]) -> DataFrame:
    """Return rows that are in memory as a DataFrame of ``ROWS_SCHEMA``."""
    batches = list(to_row_batches(rows))
    return spark.createDataFrame(pa.Table.from_batches(batches, _ARROW_SCHEMA), ROWS_SCHEMA)


def _entries(batches: Iterable[pa.RecordBatch]) -> Iterator[_Entry]:
    for batch in batches:
        for number in range(batch.num_rows):  # row by row, because an entry may be large
            yield _Entry(*(column[number].as_py() for column in batch.columns))
