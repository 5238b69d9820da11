"""The keyed state of an operator with an error policy, whose changes can be undone."""

from __future__ import annotations

from functools import partial
from typing import Any

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.keyed_store import PagedKeyedStore, timers_in
from dsv2.runtime.state.page_store import PageStores
from dsv2.runtime.state.undo import LoggedDict, UndoLog
from dsv2.spi import KeyEntry


class UndoableKeyedStore(PagedKeyedStore):
    """Logs changes of values, entries and panes, and the keys that are added."""

    def __init__(self, codec: Codec, owner: str, remember: bool, stores: PageStores, log: UndoLog) -> None:
        super().__init__(codec, owner, remember, stores, log.new_dict, _LoggedEntries(log, self))
        self._log = log

    def entry(self, key: Any) -> KeyEntry:
        """As for any store, but ``live`` stays empty, so that every access comes here and is logged."""
        self._pages.changed.add(self._place(key))
        entry: KeyEntry = self._entries.setdefault(key, {})
        return entry

    def _place(self, key: Any) -> int:
        before = self._count
        number = super()._place(key)
        if self._log.active and self._count > before:
            self._log.add(key, partial(self._remove, key))
        return number

    def _remove(self, key: Any) -> None:
        self._pages.remove(key)
        self._count -= 1
        self.touched.discard(key)


class _LoggedEntries(LoggedDict):
    """The entries of keys. The number of timers follows those that are restored."""

    __slots__ = ("_store",)

    def __init__(self, log: UndoLog, store: PagedKeyedStore) -> None:
        super().__init__(log)
        self._store = store

    def restore_key(self, key: Any, saved: Any) -> None:
        before = timers_in(dict.get(self, key, {}))
        super().restore_key(key, saved)
        self._store.timers += timers_in(dict.get(self, key, {})) - before
