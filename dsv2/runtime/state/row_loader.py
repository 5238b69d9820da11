"""Loads rows of a savepoint into the keyed store of a new subtask."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

from dsv2.errors import CorruptDataError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.keyed_store import Domain, PagedKeyedStore, timers_in
from dsv2.runtime.state.migrations import split_name
from dsv2.runtime.state.rows import TIMERS, RowKind, StateRow
from dsv2.spi import KeyEntry

_ROWS_BETWEEN_SNAPSHOTS = 100_000
_Pane: TypeAlias = tuple[int, bool, tuple[int, ...]]
"""The deadline, time domain and layout of a pane."""

_OF_STATES = (RowKind.KEYED, RowKind.EXPIRING)


class RowLoader:
    """Adds rows in any order.

    Rows that belong to a key are only those of keys that the subtask owns. Panes are rows of all old subtasks, because
    their keys may come from any of them.

    Args:
        store: The keyed store, empty. It is not used meanwhile.
        states: The names of the states that the function declares. Rows of other states are dropped.
        codec: Decodes keys and values.
        owner: Names the state in error messages.
    """

    def __init__(self, store: PagedKeyedStore, states: Collection[str], codec: Codec, owner: str) -> None:
        self._store = store
        self._states = states
        self._codec = codec
        self._owner = owner
        self._loaded = 0
        self._panes: dict[tuple[int, int], _Pane] = {}  # by slot and old subtask
        self._contributors: dict[int, set[int]] = {}  # by slot the old subtasks that have values for its keys

    def add(self, row: StateRow) -> None:
        """Add a row that belongs to a key, or one of kind ``PANE``.

        Raises:
            CorruptDataError: The row cannot be decoded.
        """
        if row.kind is RowKind.PANE:
            self._panes[_slot(row), row.subtask] = self._decode(row.value)
            return
        if row.kind in _OF_STATES and not self.is_declared(row):
            return
        self._add_of_key(row, self._decode(row.key))
        self._loaded += 1
        if self._loaded % _ROWS_BETWEEN_SNAPSHOTS == 0:
            self._store.snapshot()  # stores the pages, which frees them if they are outside the state blob

    def is_declared(self, row: StateRow) -> bool:
        """Return whether the function declares the state of ``row``, which is a row of a state."""
        return row.state is not None and split_name(row.state)[0] in self._states

    def finish(self) -> None:
        """Set the deadlines of the panes. Called after the last row."""
        for slot, subtasks in self._contributors.items():
            self._store.panes.schedule(slot, *_common([self._panes[slot, subtask] for subtask in sorted(subtasks)]))
        self._store.snapshot()

    def _add_of_key(self, row: StateRow, key: Any) -> None:
        store = self._store
        if row.kind is RowKind.IN_PANE:
            slot = _slot(row)
            self._contributors.setdefault(slot, set()).add(row.subtask)
            store.panes.unscheduled(slot).live[key] = self._decode(row.value)
            return
        store.touch(key)
        if row.kind is RowKind.KEYED:
            assert row.state is not None
            store.column(row.state)[key] = self._decode(row.value)
        elif row.kind is RowKind.EXPIRING:
            _add_expiring(store.entry(key), row.state, self._decode(row.value))
        elif row.kind is RowKind.TIMERS:
            assert row.state is not None
            if TIMERS[row.state] != Domain.EXPIRY:
                timers = {TIMERS[row.state]: self._decode(row.value)}
                store.entry(key).update(timers)
                store.timers += timers_in(timers)
        elif row.kind is RowKind.ENTRY:
            store.entry(key).update(self._decode(row.value))

    def _decode(self, data: bytes | None) -> Any:
        if data is None:
            raise CorruptDataError(f"{self._owner}: a row has no value.")
        return self._codec.loads(data, self._owner)


def _add_expiring(entry: KeyEntry, state: str | None, value: Any) -> None:
    """Add a value with its expiry: a pair, a list of pairs, or a dict of pairs.

    The deadline of the key follows from its values. That in the savepoint may be one of a state that was dropped.
    """
    entry[state] = value
    pairs = value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
    entry[Domain.EXPIRY] = [min([*entry.get(Domain.EXPIRY, ()), *(expiry for _, expiry in pairs)])]


def _slot(row: StateRow) -> int:
    assert row.state is not None
    return int(row.state)


def _common(panes: list[_Pane]) -> _Pane:
    """Return the attributes of a pane whose keys come from several subtasks.

    Deadlines that differ depend on the rows, in extensions that use layouts. An empty layout makes the extension put
    the rows into panes again.
    """
    deadline, by_event, layout = min(panes)
    return deadline, by_event, layout if len(set(panes)) == 1 else ()
