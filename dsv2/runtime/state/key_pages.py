"""The pages of keyed state. What keys have lies in columns: one for each state, and one for all else, the entries.

A page that is decoded is merely a dict of its keys, and what they have is in the columns beside that of the other
decoded pages, where it is found by key alone. So many touched keys cost little more than their look-ups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dsv2.errors import SerializationError
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_store import PageStore
from dsv2.runtime.state.pages import Page, Pages, encode_state
from dsv2.spi import KeyEntry

__all__ = ("KeyPages",)

_ENTRIES = None  # their name among the columns; others have strings


class KeyPages(Pages):
    """Pages of keys, with ``columns`` and ``entries`` of the keys of all pages that are decoded."""

    __slots__ = ("columns", "entries", "numbers")

    def __init__(self, codec: Codec, owner: str, store: PageStore) -> None:
        super().__init__(codec, owner, store)
        self.numbers: dict[Any, int] = {}
        """The page of each key that is in a decoded one."""
        self.entries: dict[Any, KeyEntry] = {}
        self.columns: dict[str | None, dict[Any, Any]] = {_ENTRIES: self.entries}
        """By name and key. What is in here is there, be it None. Entries are not empty when pages are encoded."""

    def column(self, name: str) -> dict[Any, Any]:
        """The column ``name``: always the same dict."""
        return self.columns.setdefault(name, {})

    def add(self, key: Any, number: int) -> None:
        """Put a key that has no place yet into page ``number``."""
        self.load(number)[key] = None
        self.numbers[key] = number
        self.changed.add(number)

    def drop_empty(self, page: Page) -> int:
        """Take keys that are in no column out of their decoded page, before a snapshot; how many these were."""
        empty = set(page).difference(*self.columns.values())
        for key in empty:
            del page[key]
        return len(empty)

    def grow(self, keys: int) -> range:
        new = super().grow(keys)
        for number in new:
            self.numbers.update(dict.fromkeys(self.load(number), number))
        return new

    def snapshot(self) -> tuple[int, dict[int, bytes]]:
        """As of all pages; nothing is decoded then, for a value that is changed from now on has to be asked for."""
        state = super().snapshot()
        self._forget()
        return state

    def adopt(self, pages: Mapping[int, bytes], stored: Collection[int]) -> None:
        super().adopt(pages, stored)
        self._forget()

    def _values_of(self, key: Any) -> KeyEntry:
        """All that it has, by name."""
        states = {name: column[key] for name, column in self.columns.items() if key in column and name is not _ENTRIES}
        return {**states, **self.entries.get(key, {})}

    def _forget(self) -> None:
        self._decoded.clear()
        self.numbers.clear()
        for column in self.columns.values():
            column.clear()

    def _decode(self, number: int, data: bytes) -> Page:
        keys, names, *columns = self._codec.loads_columns(data, self._owner)
        self.numbers.update(dict.fromkeys(keys, number))
        for name, holders, values in zip(names, columns[::2], columns[1::2], strict=True):
            column = self.columns.get(name)
            if column is None:
                column = self.column(name)  # of a state that is no longer declared
            column.update(zip(holders or keys, values, strict=True))
        return dict.fromkeys(keys)

    def _encode(self, page: Page) -> bytes:
        keys = page.keys()
        names: list[str | None] = []
        columns: list[list[Any]] = [list(keys), names]  # and for each name the keys that have a value, and the values
        for name, column in self.columns.items():
            if keys <= column.keys():
                names.append(name)
                columns += [], list(map(column.__getitem__, keys))  # all keys have one
            elif column and (holders := [key for key in keys if key in column]):
                names.append(name)
                columns += holders, list(map(column.__getitem__, holders))
        try:
            return self._codec.dumps_columns(columns)
        except SerializationError:
            for key in keys:
                encode_state(self._codec, self._values_of(key), f"{self._owner}, key {shorten(key)}")
            raise
