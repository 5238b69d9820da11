"""Undoes the changes of a callback to declared state and timers, for operators with an error policy.

State is in dicts by key. A ``LoggedDict`` saves the value of a key before its first access in a callback, because a
value that is handed out may be changed in place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from operator import is_
from typing import Any

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.immutable import IMMUTABLE, is_flat
from dsv2.runtime.state.keyed_store import PagedKeyedStore, timers_in
from dsv2.runtime.state.page_store import PageStores
from dsv2.spi import KeyEntry

_ABSENT: Any = object()


class UndoLog:
    """Logs the changes of one operator between ``begin`` and ``commit`` or ``undo``."""

    __slots__ = ("_actions", "_changed", "active")

    def __init__(self) -> None:
        self.active = False
        self._changed: list[LoggedDict] = []
        self._actions: dict[Any, Callable[[], None]] = {}

    def new_dict(self) -> dict[Any, Any]:
        """Create a dict whose changes are logged."""
        return LoggedDict(self)

    def changed(self, values: LoggedDict) -> None:
        """Note that ``values`` has saved a value."""
        self._changed.append(values)

    def add(self, key: Any, action: Callable[[], None]) -> None:
        """Call ``action`` if the changes of ``key`` are undone, after its values are restored."""
        self._actions[key] = action

    def begin(self) -> None:
        """Start logging."""
        self.active = True

    def commit(self) -> None:
        """Keep the changes."""
        self.active = False
        for values in self._changed:
            values.saved.clear()
        self._changed.clear()
        if self._actions:
            self._actions.clear()

    def undo(self) -> None:
        """Undo the changes."""
        self.active = False
        for values in self._changed:
            values.restore()
        for action in reversed(self._actions.values()):
            action()
        self.commit()

    def commit_key(self, key: Any) -> None:
        """Keep the changes of one of the keys that records in flight change."""
        for values in self._changed:
            values.saved.pop(key, None)
        self._changed = [values for values in self._changed if values.saved]
        self._actions.pop(key, None)

    def undo_key(self, key: Any) -> None:
        """Undo the changes of one of these keys."""
        for values in self._changed:
            if key in values.saved:
                values.restore_key(key, values.saved[key])
        if key in self._actions:
            self._actions[key]()
        self.commit_key(key)


class LoggedDict(dict[Any, Any]):
    """A dict that saves values before they are accessed. ``update`` loads stored values, which changes nothing."""

    __slots__ = ("_log", "saved")

    def __init__(self, log: UndoLog) -> None:
        super().__init__()
        self._log = log
        self.saved: dict[Any, Any] = {}

    def get(self, key: Any, default: Any = None, /) -> Any:
        if self._log.active and key not in self.saved:
            self._save(key)
        return dict.get(self, key, default)

    def pop(self, key: Any, /, *default: Any) -> Any:
        if self._log.active and key not in self.saved:
            self._save(key)
        return dict.pop(self, key, *default)

    def setdefault(self, key: Any, default: Any = None, /) -> Any:
        if self._log.active and key not in self.saved:
            self._save(key)
        return dict.setdefault(self, key, default)

    def __getitem__(self, key: Any, /) -> Any:
        if self._log.active and key not in self.saved:
            self._save(key)
        return dict.__getitem__(self, key)

    def __setitem__(self, key: Any, value: Any, /) -> None:
        if self._log.active and key not in self.saved:
            self._save(key)
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: Any, /) -> None:
        if self._log.active and key not in self.saved:
            self._save(key)
        dict.__delitem__(self, key)

    def update(self, values: Any, /) -> None:  # type: ignore[override]
        loaded = dict(values)
        dict.update(self, loaded)
        for key in loaded if self.saved else ():
            self.saved.pop(key, None)  # it was saved as absent

    def restore(self) -> None:
        """Restore the saved values. Lists and dicts stay the same objects."""
        for key, saved in self.saved.items():
            self.restore_key(key, saved)

    def restore_key(self, key: Any, saved: Any) -> None:
        """Restore the saved value of one key."""
        if saved is _ABSENT:
            dict.pop(self, key, None)
        else:
            dict.__setitem__(self, key, saved.restored() if isinstance(saved, _Saved) else saved)

    def _save(self, key: Any) -> None:
        if not self.saved:
            self._log.changed(self)
        value = dict.get(self, key, _ABSENT)
        self.saved[key] = value if type(value) in IMMUTABLE else _save(value)


class _Saved:
    """A container, and its elements, which may be containers."""

    __slots__ = ("container", "elements")

    def __init__(self, container: Any, elements: Any) -> None:
        self.container = container
        self.elements = elements

    def restored(self) -> Any:
        """Restore the elements, and return the container."""
        container, elements = self.container, self.elements
        if type(container) is list:
            container[:] = map(_restored, elements)
        elif type(container) is dict:
            container.clear()
            container.update((key, _restored(element)) for key, element in elements.items())
        else:
            container = tuple(map(_restored, elements))
        return container


def _restored(saved: Any) -> Any:
    return saved.restored() if isinstance(saved, _Saved) else saved


def _save(value: Any) -> Any:
    """Return a value that restores ``value`` after a change in place: itself, a copy, or a ``_Saved``."""
    kind = type(value)
    if kind in IMMUTABLE or value is _ABSENT:
        return value
    if kind is list:
        return _Saved(value, [one if type(one) in IMMUTABLE else _save(one) for one in value])
    if kind is dict:
        return _Saved(value, {key: one if type(one) in IMMUTABLE else _save(one) for key, one in value.items()})
    if isinstance(value, tuple):
        parts = [one if type(one) in IMMUTABLE else _save(one) for one in value]
        if all(map(is_, parts, value)):
            return value
        return _Saved(value, parts) if kind is tuple else copy.deepcopy(value)
    return value if is_flat(value) else copy.deepcopy(value)


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
