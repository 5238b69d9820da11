"""The keyed state of an operator with an error policy, whose changes can be undone."""

from __future__ import annotations

from functools import partial
from typing import Any

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.page_store import PageStores
from dsv2.runtime.state.undo import UndoLog
from dsv2.spi import KeyEntry

__all__ = ("UndoableKeyedStore",)


class UndoableKeyedStore(PagedKeyedStore):
    """Logs changes of values, entries and panes, and the keys that are added."""

    def __init__(self, codec: Codec, owner: str, remember: bool, stores: PageStores, log: UndoLog) -> None:
        super().__init__(codec, owner, remember, stores, log.new_dict)
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
