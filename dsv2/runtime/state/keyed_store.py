"""The keyed state of one operator in one subtask: columns and entries by key, in pages, and panes by window.

The cost of a micro-batch depends on the keys that it touches, not on the stored keys. Timers and expired values
are found by the earliest deadline of each page, without a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from dsv2.errors import InvalidKeyError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.deadlines import Deadlines
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.runtime.state.key_pages import KeyPages
from dsv2.runtime.state.migrations import Migrations
from dsv2.runtime.state.page_store import PageStores, in_blob
from dsv2.runtime.state.pages import KEYS_PER_PAGE, Page, mixed_hash, sampled
from dsv2.runtime.state.panes import PagedPanes
from dsv2.spi import KeyEntry


class Domain:
    """Kinds of deadlines. An entry stores those of a kind as a sorted list under the kind's number."""

    EVENT_TIME: Final = 0
    PROCESSING_TIME: Final = 1
    EXPIRY: Final = 2
    EVENT_EXPIRY: Final = 3
    KEY_WATERMARKS: Final = 4


_CROWDED = 4 * KEYS_PER_PAGE
"""Average size at which pages are split at once, to keep walks over their timers short; else at the snapshot."""

_DOMAINS = (Domain.EVENT_TIME, Domain.PROCESSING_TIME, Domain.EXPIRY, Domain.EVENT_EXPIRY)
_EMPTY: KeyEntry = {}


def _new_deadlines(codec: Codec, owner: str, stores: PageStores, domain: int) -> Deadlines:
    return Deadlines(codec, f"{owner}, deadlines", stores, f"deadlines/{domain}")


def timers_in(entry: KeyEntry) -> int:
    """Return the number of timers in the entry of a key."""
    return len(entry.get(Domain.EVENT_TIME, ())) + len(entry.get(Domain.PROCESSING_TIME, ()))


class PagedKeyedStore:
    """Maps keys to a value in each ``column``, and to an ``entry`` for other data.

    Args:
        codec: Serializes pages.
        owner: Names the state in error messages.
        remember: Whether a touched key stays even without values. If False, it is removed with its last value.
        stores: Creates the stores of pages between micro-batches.
        new_dict: Creates the dicts that hold values.
        entries: The dict of entries. None (default): ``new_dict`` creates it.
    """

    def __init__(
        self,
        codec: Codec,
        owner: str,
        remember: bool = True,
        stores: PageStores = in_blob,
        new_dict: Callable[[], dict[Any, Any]] = dict,
        entries: dict[Any, KeyEntry] | None = None,
    ) -> None:
        self.remembers = remember
        self.timers = 0
        """The number of timers in all entries. Whoever adds or removes timers of an entry keeps it up to date."""
        self.panes = PagedPanes(codec, owner, stores, new_dict)
        self._pages = KeyPages(codec, owner, stores("keys", owner), new_dict, entries)
        self._entries = self._pages.entries
        self._hashes = self._pages.hashes
        self._has_columns = False
        self._count = 0
        self._new_deadlines = partial(_new_deadlines, codec, owner, stores)
        self._deadlines = {domain: self._new_deadlines(domain) for domain in _DOMAINS}
        self.touched: set[Any] = set()
        """Keys that need not be touched again before the next snapshot: their values are in the columns."""
        self.live: dict[Any, KeyEntry] = {}
        """Entries that ``entry`` has returned since the last snapshot: the fast path for hot code."""

    def add_domain(self, domain: int) -> None:
        """Keep deadlines of a kind that few operators have. Called before anything is stored or restored."""
        self._deadlines[domain] = self._new_deadlines(domain)

    def __len__(self) -> int:
        return self._count

    @property
    def values_held(self) -> int:
        """The number of keys, and of pairs of a key and a window."""
        return self._count + sum(map(len, self.panes))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over a snapshot of the keys, page by page."""
        keys = [key for page in self._pages for key in self._held(page)]
        in_panes = dict.fromkeys(key for pane in self.panes for key in pane)
        yield from dict.fromkeys([*keys, *in_panes])

    def column(self, name: str) -> dict[Any, Any]:
        """Return the values of a state by key. It is always the same dict. Call it before touching the first key.

        Touch a key before you read or change its value.
        """
        self._has_columns = True
        return self._pages.column(name)

    def convert_with(self, migrations: Migrations) -> None:
        """Convert outdated values with ``migrations`` when they are loaded. Call it before touching the first key."""
        self._pages.migrations = migrations

    def columns_of(self, key: Any) -> Iterator[tuple[str, Any]]:
        """Iterate over the values of ``key`` with the names of their columns, read-only."""
        self._load(key)
        for name, column in self._pages.columns.items():
            if name is not None and key in column:
                yield name, column[key]

    def touch(self, key: Any) -> None:
        """Load the values of ``key``. Callers skip the call for keys in ``touched``.

        Raises:
            InvalidKeyError: The key is None or of a type that cannot be a key.
        """
        if key is None:
            raise InvalidKeyError("The assigned key must not be None.")
        if self._has_columns:
            self._touch_page(self._place(key))
        elif self.remembers:
            self._place(key)
        else:
            stable_hash(key)  # only to check it
        self.touched.add(key)

    def _touch_page(self, number: int) -> None:
        # States are likely to change, so mark the page as changed. Then none of its other keys need to be touched.
        if number not in self._pages.changed:
            self._pages.changed.add(number)
            self.touched.update(self._pages.load(number))

    def entry(self, key: Any) -> KeyEntry:
        """Return the entry of ``key``, creating it if necessary. Changes are stored by the next ``snapshot``."""
        entry = self.live.get(key)
        if entry is None:
            self._pages.changed.add(self._place(key))
            entry = self.live[key] = self._entries.setdefault(key, {})
        return entry

    def find(self, key: Any) -> KeyEntry | None:
        """Return the entry of ``key`` for reading, or None."""
        self._load(key)
        return self._entries.get(key)

    def add_deadline(self, domain: int, key: Any, time: int) -> None:
        """Register a deadline that was added to the entry of ``key``."""
        self._deadlines[domain].hasten(self._place(key), time)

    def next_deadline(self, domain: int) -> int | None:
        """Return the earliest deadline, or an earlier time if one was removed; None if there is none."""
        deadlines = self._deadlines.get(domain)
        return None if deadlines is None else deadlines.next()

    def take_due(self, domain: int, time: int) -> list[tuple[int, Any]]:
        """Return deadlines up to ``time`` with their keys, each once, in an unspecified but deterministic order.

        The caller removes them from the entries.
        """
        due: list[tuple[int, Any]] = []
        if domain not in self._deadlines:
            return due
        for number in self._deadlines[domain].take(time):
            later: int | None = None
            for key in self._pages.load(number):
                for deadline in self._entries.get(key, _EMPTY).get(domain, ()):
                    if deadline > time:
                        later = deadline if later is None else min(later, deadline)
                        break
                    due.append((deadline, key))
            if later is not None:
                self._deadlines[domain].hasten(number, later)
        return due

    @property
    def decoded_size(self) -> int:
        """The approximate memory in bytes that the next ``snapshot`` releases."""
        return self._pages.decoded_size + sum(pane.decoded_size for pane in self.panes)

    def exceeds_budget(self) -> bool:
        """Return whether a ``snapshot`` should be taken before the end of the micro-batch, to release memory."""
        kept = self._pages.kept
        return kept is not None and kept.use(self.decoded_size)

    def snapshot(self) -> tuple[Any, ...]:
        """Return the state as built-in values, with pages as bytes. Only changed pages are encoded."""
        self._drop_empty()
        if self._pages.learns(self._count, len(self._hashes)):
            self._pages.learn(dict.fromkeys(sampled(self._hashes)))
        self._grow()
        indexed = {domain for domain, deadlines in self._deadlines.items() if deadlines.next() is not None}
        if self._entries or indexed:
            for number in self._pages.changed:
                firsts = self._earliest(self._pages.load(number))
                for domain in indexed | firsts.keys():
                    self._deadlines[domain].put(number, firsts.get(domain))
        if not self._count:
            self._pages.clear()
        self.touched.clear()  # so that later changes load the value or entry again
        self.live.clear()
        deadlines_of = {
            domain: state
            for domain, deadlines in self._deadlines.items()
            if (state := deadlines.snapshot()) is not None
        }
        return self._count, self._pages.snapshot(), deadlines_of, self.timers, self.panes.snapshot()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore a ``snapshot``."""
        self._count, pages, deadlines_of, self.timers, panes = state
        self._pages.restore(pages)
        self.panes.restore(panes)
        for domain, deadlines in self._deadlines.items():
            deadlines.restore(deadlines_of.get(domain))
        self.touched.clear()
        self.live.clear()

    def _load(self, key: Any) -> None:
        if key not in self._hashes:
            self._pages.load(self._pages.number_of(key))

    def _place(self, key: Any) -> int:
        """Return the page of ``key``, adding the key if necessary."""
        mixed = self._hashes.get(key)
        if mixed is None:
            mixed = self._hashes[key] = mixed_hash(key)
            number = self._pages.page_of(mixed)
            if key not in self._pages.load(number):
                self._pages.add(key, number)
                self._count += 1
                if self._count > _CROWDED * self._pages.count:
                    self._grow()
        return self._pages.page_of(mixed)

    def _held(self, page: Page) -> list[Any]:
        """The keys of a page, without keys that will be removed because they have no values."""
        if self.remembers:
            return list(page)
        columns = [column for name, column in self._pages.columns.items() if name is not None]
        return [key for key in page if self._entries.get(key) or any(key in column for column in columns)]

    def _grow(self) -> None:
        for number in self._pages.grow(self._count, len(self._hashes)):
            for domain, first in self._earliest(self._pages.load(number)).items():
                self._deadlines[domain].hasten(number, first)

    def _drop_empty(self) -> None:
        entries = self._entries
        if self.remembers and not entries:
            return
        for number in self._pages.changed:
            page = self._pages.load(number)
            for key in [key for key in page if key in entries and not entries[key]]:
                del entries[key]
            if not self.remembers:
                self._count -= self._pages.drop_empty(page)

    def _earliest(self, page: Page) -> dict[int, int]:
        """The earliest deadline of each kind."""
        held = list(filter(None, map(self._entries.get, page))) if self._entries else []
        firsts = {
            domain: [deadlines[0] for entry in held if (deadlines := entry.get(domain))]
            for domain in self._deadlines.keys() & set[Any]().union(*held)
        }
        return {domain: min(times) for domain, times in firsts.items() if times}
