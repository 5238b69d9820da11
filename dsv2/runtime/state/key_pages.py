"""The pages of keyed state. Values are stored in columns: one for each state, and one for the entries of keys.

A decoded page is only a dict of its keys. Their values are in columns shared by all decoded pages, where they are found
by key alone, so that a touched key costs little more than the lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dsv2.errors import SerializationError
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.immutable import IMMUTABLE, is_immutable
from dsv2.runtime.state.migrations import Migrations
from dsv2.runtime.state.page_budget import decoded_size
from dsv2.runtime.state.page_store import PageStore
from dsv2.runtime.state.pages import Page, Pages, encode_state, mixed_hash
from dsv2.spi import KeyEntry

_ENTRIES = None  # the name of the column of entries; other names are strings
_TIMERS = frozenset({0, 1})  # their names in entries


class KeyPages(Pages):
    """Pages of keys, with the ``columns`` and ``entries`` of all decoded pages."""

    __slots__ = ("_encoded", "_new_dict", "columns", "entries", "hashes", "kept", "migrations")

    def __init__(
        self,
        codec: Codec,
        owner: str,
        store: PageStore,
        new_dict: Callable[[], dict[Any, Any]] = dict,
        entries: dict[Any, KeyEntry] | None = None,
    ) -> None:
        super().__init__(codec, owner, store)
        self._new_dict = new_dict
        self._encoded: list[list[Any]] = []  # the columns of the page that was encoded last
        self.kept = None if store.budget is None else store.budget.new_map()
        """The pages that stay decoded. None: none do."""
        self.hashes: dict[Any, int] = {}
        """The mixed hash of each key that was accessed since the last snapshot."""
        self.entries: dict[Any, KeyEntry] = new_dict() if entries is None else entries
        self.columns: dict[str | None, dict[Any, Any]] = {_ENTRIES: self.entries}
        """Values by name and key; None is a value. Entries are not empty when pages are encoded."""
        self.migrations: Migrations | None = None
        """Convert outdated values when a page is decoded. None: there are no converters."""

    def column(self, name: str) -> dict[Any, Any]:
        """Return the column ``name``. It is always the same dict."""
        column = self.columns.get(name)
        if column is None:
            column = self.columns[name] = self._new_dict()
        return column

    def add(self, key: Any, number: int) -> None:
        """Add a new key to page ``number``."""
        self.load(number)[key] = None
        self.changed.add(number)

    def remove(self, key: Any) -> None:
        """Remove a key without values from its decoded page."""
        del self.load(self.page_of(self.hashes.pop(key)))[key]

    def drop_empty(self, page: Page) -> int:
        """Remove the keys without values from a decoded page before a snapshot, and return their number."""
        empty = set(page).difference(*self.columns.values())
        for key in empty:
            del page[key]
        return len(empty)

    def _hashes_of(self, page: Page) -> list[int]:
        return [self.hashes.get(key) or mixed_hash(key) for key in page]

    @property
    def decoded_size(self) -> int:
        values = sum(map(len, self.columns.values())) + len(self.hashes)
        return super().decoded_size + decoded_size(0, 0, values, len(self.entries))

    def snapshot(self) -> tuple[int, dict[int, bytes], int]:
        """Take a snapshot and drop all decoded pages, so that later changes load the page again."""
        state = super().snapshot()
        if self._store.budget is not None:
            self._store.budget.enforce()
        return state

    def adopt(self, pages: Mapping[int, bytes], stored: Collection[int]) -> None:
        super().adopt(pages, stored)
        if self.kept is not None:
            self.kept.clear()

    def clear(self) -> None:
        super().clear()
        if self.kept is not None:
            self.kept.clear()

    def _values_of(self, key: Any) -> KeyEntry:
        """All values of a key, by name."""
        states = {name: column[key] for name, column in self.columns.items() if key in column and name is not _ENTRIES}
        return {**states, **self.entries.get(key, {})}

    def _stored_page(self, number: int) -> Page:
        if self.kept is not None and (kept := self.kept.get(number)) is not None:
            self._loaded_bytes += len(kept.data)
            return self._load(kept.columns)
        return super()._stored_page(number)

    def _write(self, number: int, data: bytes) -> None:
        kept, (_, names, *columns) = self.kept, self._encoded
        if kept is None or not kept.has(number, data):
            super()._write(number, data)
        if kept is None:
            return
        if all(map(_is_fixed, names, columns[1::2])):
            entries = len(columns[2 * names.index(_ENTRIES) + 1]) if _ENTRIES in names else 0
            kept.put(number, data, self._encoded, entries)
        else:
            kept.remove(number)

    def _forget(self) -> None:
        super()._forget()
        self.hashes.clear()
        if self.kept is not None:
            self.kept.use(0)
        for column in self.columns.values():
            column.clear()

    def _decode(self, number: int, data: bytes) -> Page:
        return self._load(self._codec.loads_columns(data, self._owner))

    def _load(self, decoded: Sequence[Sequence[Any]]) -> Page:
        """Load the columns of a page."""
        keys, names, *columns = decoded
        for name, holders, values in zip(names, columns[::2], columns[1::2], strict=True):
            if self.migrations is not None and self._convert(name, holders or keys, values):
                continue
            column = self.columns.get(name)
            if column is None:
                column = self.column(name)  # a state that is no longer declared
            column.update(zip(holders or keys, values, strict=True))
        return dict.fromkeys(keys)

    def _convert(self, name: str | None, keys: Sequence[Any], values: Sequence[Any]) -> bool:
        """Convert the outdated values of a page. Return whether the column was outdated and has been loaded."""
        assert self.migrations is not None
        if name is _ENTRIES:
            if self.migrations.of_entries:
                for key, entry in zip(keys, values, strict=True):
                    self.migrations.convert_entry(key, entry)
            return False
        if self.migrations.outdated(name) is None:
            return False
        current, converted = self.migrations.convert_column(name, keys, values)
        self.column(current).update(converted)
        return True

    def _encode(self, page: Page) -> bytes:
        keys = page.keys()
        names: list[str | None] = []
        columns: list[list[Any]] = [list(keys), names]  # then for each name the keys with a value, and the values
        for name, column in self.columns.items():
            try:
                values = list(map(column.__getitem__, keys))
                names.append(name)
                columns += [], values  # no keys: all of them have a value
            except KeyError:
                if column and (holders := [key for key in keys if key in column]):
                    names.append(name)
                    columns += holders, list(map(column.__getitem__, holders))
        self._encoded = columns
        try:
            return self._codec.dumps_columns(columns)
        except SerializationError:
            for key in keys:
                encode_state(self._codec, self._values_of(key), f"{self._owner}, key {shorten(key)}")
            raise


def _is_fixed(name: str | None, values: Sequence[Any]) -> bool:
    """Return whether no function can change one of these values of a column in place."""
    if name is _ENTRIES:
        return all(map(_TIMERS.issuperset, values))  # lists of times, which only the runtime changes
    return IMMUTABLE.issuperset(map(type, values)) or all(map(is_immutable, values))
