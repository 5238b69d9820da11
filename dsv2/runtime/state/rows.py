"""The state of an operator as rows, the form in which savepoints hold it.

State of keys has a row for each key and value, so that each row can move to the subtask that owns its key. All other
state has a row for each part and subtask. Values are in the encoding of the codec, without a blob around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

from dsv2.errors import CorruptDataError
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.runtime.state.keyed_store import Domain
from dsv2.runtime.state.page_store import BlobPages, PageStores
from dsv2.runtime.state.pages import page_of_hash

PARTS = (
    "fields",
    "gates",
    "watermarks",
    "across_inputs",
    "event_time",
    "sent_time",
    "inputs",
    "lifecycle",
    "records_in",
    "counters",
    "metrics",
)
"""The parts of an operator's snapshot that have a row of kind ``PART`` each. ``metrics`` may be absent."""

TIMERS: Mapping[str, int] = {
    "event": Domain.EVENT_TIME,
    "processing": Domain.PROCESSING_TIME,
    "expiry": Domain.EXPIRY,
    "event-expiry": Domain.EVENT_EXPIRY,
}
"""The time domains of timers by the name that rows have for them."""
_TIMER_NAMES = {domain: name for name, domain in TIMERS.items()}


class RowKind(StrEnum):
    """The contents of a row. In parentheses: what ``state`` names, if anything."""

    PART = "part"
    """A part of the snapshot (its name in ``PARTS``)."""
    SUBTASK_STATE = "subtask-state"
    """A state of the subtask (the state)."""
    EDGE = "edge"
    """The position of a round-robin edge and the number of records sent."""
    KEYED = "keyed"
    """The value of a key in a state (the state)."""
    EXPIRING = "expiring"
    """The value of a key in a state with time to live, with its expiry (the state)."""
    TIMERS = "timers"
    """The times of a key's timers in ms, sorted (the time domain)."""
    ENTRY = "entry"
    """An entry of an extension for a key, such as a window."""
    KEY = "key"
    """A key that was seen and has no values."""
    PANE = "pane"
    """The deadline, time domain and layout of a pane (its number)."""
    IN_PANE = "in-pane"
    """The value of a key in a pane (its number)."""
    REPLAY = "replay"
    """A record of a dead letter that is to be processed again (``ReplayPlace``)."""

    @property
    def has_key(self) -> bool:
        """True if rows of this kind belong to a key."""
        return self in _OF_KEYS

    @property
    def is_of_state(self) -> bool:
        """True if rows of this kind hold values of a declared state."""
        return self in (RowKind.KEYED, RowKind.EXPIRING, RowKind.SUBTASK_STATE)


_OF_KEYS = {
    RowKind.KEYED,
    RowKind.EXPIRING,
    RowKind.TIMERS,
    RowKind.ENTRY,
    RowKind.KEY,
    RowKind.IN_PANE,
}


class StateRow(NamedTuple):
    """One row of the state of an operator.

    Attributes:
        subtask: The subtask whose state it was.
        kind: The contents.
        state: What the kind names, or None. For a state it is the stored name, with the version of the value.
        key: The encoded key, or None.
        value: The encoded value, or None.
    """

    subtask: int
    kind: RowKind
    state: str | None
    key: bytes | None
    value: bytes | None


class TablePages(Protocol):
    """The pages of a table."""

    @property
    def stored(self) -> int:
        """The number of pages."""

    @property
    def pages(self) -> Mapping[int, bytes]:
        """The pages that are in the blob."""


class RowTable(Protocol):
    """A state, or timers, of a function on tables, as stored."""

    @property
    def row_kind(self) -> str:
        """The kind of its rows."""

    @property
    def state(self) -> str:
        """The name in its rows: a stored name, or a time domain."""

    @property
    def due(self) -> tuple[int, bool]:
        """The time at which the pane is due, of values in a pane, in ms, and whether that is event time."""

    @property
    def table(self) -> TablePages:
        """Its pages."""

    def rows(self, page: bytes, subtask: int, codec: Codec, owner: str, /) -> Iterator[StateRow]:
        """Return the rows of a page."""


ReadTables: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, RowTable]]
"""Returns the tables in the part ``columns`` of the snapshot of an operator, by the name of their pages."""


def rows_of(
    blob: bytes | memoryview,
    subtask: int,
    codec: Codec,
    owner: str,
    read_tables: ReadTables,
    stores: PageStores | None = None,
    uid: str | None = None,
) -> Iterator[tuple[str, StateRow]]:
    """Return the state of a subtask as rows, each with the uid of its operator. Pages are decoded one at a time.

    Args:
        blob: What ``Subtask.snapshot`` returned.
        subtask: The index of the subtask.
        codec: Decodes the state, and encodes the rows.
        owner: Names the subtask in error messages.
        read_tables: Reads the tables of functions on tables. Called if there are any.
        stores: The stores of the pages, by ``<uid>/<name>``. None: the pages are in the blob.
        uid: The only operator whose rows are returned. None: all.

    Raises:
        CorruptDataError: The blob or a page is damaged, or a page is missing.
    """
    state = StoredState(blob, subtask, codec, owner, read_tables)
    yield from (row for row in state.rows() if uid in (None, row[0]))
    for name, pages in state.pages.items():
        if uid not in (None, pages.uid):
            continue
        for payload in _payloads(name, owner, pages, stores):
            yield from state.page_rows(name, payload)


def unsealed_state(blob: bytes | memoryview, codec: Codec, owner: str) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Return the snapshot of each operator by uid, with its fields as bytes, and the positions of edges.

    Args:
        blob: What ``Subtask.snapshot`` returned.
        codec: Decodes it.
        owner: Names the subtask in error messages.
    """
    state, edges = codec.unseal(BlobKind.STATE, blob, owner)
    for snapshot in state.values():
        snapshot["fields"] = codec.dumps_nested(snapshot["fields"])
    return state, edges


class StoredPages(NamedTuple):
    """The pages of one map.

    Attributes:
        uid: The operator.
        pane: The pane whose keys they hold; None for the keys of the operator.
        number: The number of pages.
        in_blob: The pages that are in the state blob.
    """

    uid: str
    pane: int | None
    number: int
    in_blob: Mapping[int, bytes]


class StoredState:
    """The state of a subtask whose pages may be stored separately. Parameters and errors are those of ``rows_of``.

    Attributes:
        pages: The pages, by the name of their map.
    """

    def __init__(
        self, blob: bytes | memoryview, subtask: int, codec: Codec, owner: str, read_tables: ReadTables
    ) -> None:
        self._state, self._edges = unsealed_state(blob, codec, owner)
        self._subtask = subtask
        self._codec = codec
        self._owner = owner
        self.pages: dict[str, StoredPages] = {}
        self._tables: dict[str, RowTable] = {}
        for uid, snapshot in self._state.items():
            _, keys, *_, panes = snapshot["store"]
            self.pages[f"{uid}/keys"] = StoredPages(uid, None, *keys[:2])
            for slot, (*_, (_, of_pane)) in panes.items():
                self.pages[f"{uid}/pane/{slot}"] = StoredPages(uid, slot, *of_pane[:2])
            columns = snapshot.get("columns", {})
            for name, table in read_tables(columns).items() if columns else ():
                of_table = f"{uid}/columns/{name}"
                self.pages[of_table] = StoredPages(uid, None, table.table.stored, table.table.pages)
                self._tables[of_table] = table

    def rows(self) -> Iterator[tuple[str, StateRow]]:
        """Return the rows that are not in pages, each with the uid of its operator."""
        for uid, snapshot in self._state.items():
            for row in _part_rows(snapshot, self._subtask, self._codec):
                yield uid, row
        for name, table in self._tables.items():
            if table.row_kind == RowKind.IN_PANE:
                pane = self._codec.dumps((*table.due, ()))
                yield self.pages[name].uid, StateRow(self._subtask, RowKind.PANE, table.state, None, pane)
        for name, position in self._edges.items():
            value = self._codec.dumps((name, position))
            yield name[0], StateRow(self._subtask, RowKind.EDGE, None, None, value)

    def page_rows(self, name: str, payload: bytes) -> Iterator[tuple[str, StateRow]]:
        """Return the rows of a page of the map ``name``, each with the uid of its operator."""
        uid, pane, _, _ = self.pages[name]
        if name in self._tables:
            rows = self._tables[name].rows(payload, self._subtask, self._codec, self._owner)
        elif pane is None:
            rows = _key_rows(payload, self._subtask, self._codec, self._owner)
        else:
            rows = _pane_rows(payload, pane, self._subtask, self._codec, self._owner)
        for row in rows:
            yield uid, row

    def rows_near(self, uid: str, key: Any, stores: PageStores) -> Iterator[StateRow]:
        """Return the rows of a key in the states of an operator, and those of the other keys in the same pages.

        Args:
            uid: The operator.
            key: The key.
            stores: The stores of the pages.
        """
        hashed = stable_hash(key)
        for name, pages in self.pages.items():
            if pages.uid == uid and pages.pane is None and pages.number:
                number = page_of_hash(hashed, pages.number)
                for payload in _payloads(name, self._owner, pages, stores, [number]):
                    yield from (row for _, row in self.page_rows(name, payload))


def _part_rows(snapshot: Mapping[str, Any], subtask: int, codec: Codec) -> Iterator[StateRow]:
    """Return the rows of ``OperatorTask.snapshot`` that do not belong to keys."""
    for name in filter(snapshot.__contains__, PARTS):
        yield StateRow(subtask, RowKind.PART, name, None, codec.dumps(snapshot[name]))
    for name, value in snapshot["subtask_state"].items():
        yield StateRow(subtask, RowKind.SUBTASK_STATE, name, None, value)
    *_, panes = snapshot["store"]
    for slot, (deadline, by_event, layout, _) in panes.items():
        yield StateRow(subtask, RowKind.PANE, str(slot), None, codec.dumps((deadline, by_event, layout)))


def table_rows(tables: Mapping[str, RowTable], subtask: int, codec: Codec, owner: str) -> Iterator[StateRow]:
    """Return the rows of the keyed state of a function on tables, whose pages are in the blob."""
    for name, table in tables.items():
        pages = StoredPages("", None, table.table.stored, table.table.pages)
        for payload in _payloads(name, owner, pages, None):
            yield from table.rows(payload, subtask, codec, owner)


def _key_rows(payload: bytes, subtask: int, codec: Codec, owner: str) -> Iterator[StateRow]:
    """Return the rows of one page of keys."""
    keys, names, *columns = codec.loads_columns(payload, owner)
    encoded = list(map(codec.dumps, keys))
    without_value = dict.fromkeys(encoded)
    for name, holders, values in zip(names, columns[::2], columns[1::2], strict=True):
        of_values = map(codec.dumps, holders) if holders else encoded
        for key, value in zip(of_values, values, strict=True):
            without_value.pop(key, None)
            if name is None:
                yield from _entry_rows(value, subtask, codec, key)
            else:
                yield StateRow(subtask, RowKind.KEYED, name, key, codec.dumps(value))
    for key in without_value:
        yield StateRow(subtask, RowKind.KEY, None, key, None)


def _pane_rows(payload: bytes, slot: int, subtask: int, codec: Codec, owner: str) -> Iterator[StateRow]:
    """Return the rows of one page of the pane ``slot``."""
    for key, value in zip(*codec.loads_columns(payload, owner), strict=True):
        yield StateRow(subtask, RowKind.IN_PANE, str(slot), codec.dumps(key), codec.dumps(value))


def _entry_rows(entry: Mapping[Any, Any], subtask: int, codec: Codec, key: bytes) -> Iterator[StateRow]:
    others: dict[Any, Any] = {}
    for name, value in entry.items():
        if name in _TIMER_NAMES:
            yield StateRow(subtask, RowKind.TIMERS, _TIMER_NAMES[name], key, codec.dumps(value))
        elif type(name) is str:
            yield StateRow(subtask, RowKind.EXPIRING, name, key, codec.dumps(value))
        else:
            others[name] = value
    if others:
        yield StateRow(subtask, RowKind.ENTRY, None, key, codec.dumps(others))


def _payloads(
    name: str, owner: str, pages: StoredPages, stores: PageStores | None, numbers: Iterable[int] | None = None
) -> Iterator[bytes]:
    """Return the contents of pages. ``numbers``: The pages. None: all."""
    store = BlobPages() if stores is None else stores(name, owner)
    store.restore(pages.in_blob)
    for number in range(pages.number) if numbers is None else numbers:
        payload = store.get(number)
        if payload is None:
            raise CorruptDataError(f"{owner}: page {number} is missing.")
        yield payload
