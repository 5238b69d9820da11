"""The keyed state of one operator in one subtask: columns and entries by key, in pages, and panes by window.

The cost of a micro-batch follows the keys that it touches, not the keys that are held. What has to happen at some time
(timers, expiry) is found by each page's earliest deadline, so nothing is ever scanned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dsv2.errors import InvalidKeyError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.deadlines import Deadlines
from dsv2.runtime.state.key_pages import KeyPages
from dsv2.runtime.state.page_store import PageStores, in_blob
from dsv2.runtime.state.pages import KEYS_PER_PAGE, Page
from dsv2.runtime.state.panes import PagedPanes
from dsv2.spi import KeyEntry

__all__ = ("Domain", "PagedKeyedStore")


class Domain:
    """Kinds of deadlines. An entry keeps those of a kind as a sorted list, under the kind's number."""

    EVENT_TIME: Final = 0
    PROCESSING_TIME: Final = 1
    EXPIRY: Final = 2


_CROWDED = 4 * KEYS_PER_PAGE
"""Pages so full are divided at once, or many timers would mean long walks; else once in a micro-batch, at its end."""

_DOMAINS = (Domain.EVENT_TIME, Domain.PROCESSING_TIME, Domain.EXPIRY)
_EMPTY: KeyEntry = {}


class PagedKeyedStore:
    """Maps keys to what they have: a value in each ``column``, and an ``entry`` for all else.

    ``remember``: a key stays once it was touched, even if it has nothing. Else a key goes with its last value.
    ``stores``: where its pages are between micro-batches.
    """

    def __init__(self, codec: Codec, owner: str, remember: bool = True, stores: PageStores = in_blob) -> None:
        self.remembers = remember
        self.panes = PagedPanes(codec, owner, stores)
        self._pages = KeyPages(codec, owner, stores("keys", owner))
        self._entries = self._pages.entries
        self._numbers = self._pages.numbers
        self._has_columns = False
        self._count = 0
        self._deadlines = {
            domain: Deadlines(codec, owner, stores(f"deadlines/{domain}", f"{owner}, deadlines")) for domain in _DOMAINS
        }
        self.touched: set[Any] = set()
        """Keys that need no touch before the next snapshot: what they have is in the columns."""
        self.live: dict[Any, KeyEntry] = {}
        """Entries that ``entry`` has returned since the last snapshot: the short way for hot code."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        """Every key of this moment, page by page, whatever is added or removed meanwhile."""
        keys = [key for page in self._pages for key in self._held(page)]
        in_panes = dict.fromkeys(key for pane in self.panes for key in pane)
        yield from dict.fromkeys([*keys, *in_panes])

    def column(self, name: str) -> dict[Any, Any]:
        """The values of a state by key, always the same dict. Asked for before the first key is touched.

        Touch a key before its value is looked at or changed.
        """
        self._has_columns = True
        return self._pages.column(name)

    def columns_of(self, key: Any) -> Iterator[tuple[str, Any]]:
        """The values of ``key``, by name of their column, to look at."""
        self._load(key)
        for name, column in self._pages.columns.items():
            if name is not None and key in column:
                yield name, column[key]

    def touch(self, key: Any) -> None:
        """Note that ``key`` was seen. Callers skip the call for keys that are in ``touched``.

        Raises ``InvalidKeyError`` for None and for types that cannot be keys.
        """
        if key is None:
            raise InvalidKeyError("The assigned key must not be None.")
        if self._has_columns:
            self._touch_page(self._place(key))
        elif self.remembers:
            self._place(key)
        self.touched.add(key)

    def _touch_page(self, number: int) -> None:
        # States are there to be used, so that their page counts as changed; then no other key of it needs a touch.
        if number not in self._pages.changed:
            self._pages.changed.add(number)
            self.touched.update(self._pages.load(number))

    def entry(self, key: Any) -> KeyEntry:
        """The entry of ``key``, made if there is none. What is changed in it is kept by the next ``snapshot``."""
        entry = self.live.get(key)
        if entry is None:
            self._pages.changed.add(self._place(key))
            entry = self.live[key] = self._entries.setdefault(key, {})
        return entry

    def find(self, key: Any) -> KeyEntry | None:
        """The entry of ``key`` to look at, or None."""
        self._load(key)
        return self._entries.get(key)

    def add_deadline(self, domain: int, key: Any, time: int) -> None:
        """Note a deadline that was put into the entry of ``key``."""
        self._deadlines[domain].hasten(self._place(key), time)

    def next_deadline(self, domain: int) -> int | None:
        """The earliest deadline, or a time before it if that one was taken back; None if there is none."""
        return self._deadlines[domain].next()

    def take_due(self, domain: int, time: int) -> list[tuple[int, Any]]:
        """Deadlines up to ``time`` with their keys, in no particular but a repeatable order; each is given once.

        The caller takes them out of the entries.
        """
        due: list[tuple[int, Any]] = []
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

    def snapshot(self) -> tuple[Any, ...]:
        """Everything as plain values and the pages as bytes; encodes only the pages that changed."""
        self._drop_empty()
        self._grow()
        for number in self._pages.changed:
            page = self._pages.load(number)
            for domain, deadlines in self._deadlines.items():
                deadlines.put(number, self._earliest(page, domain))
        if not self._count:
            self._pages.clear()
        self.touched.clear()  # whoever changes a value or an entry from now on has to ask for it again
        self.live.clear()
        deadlines_of = {
            domain: state
            for domain, deadlines in self._deadlines.items()
            if (state := deadlines.snapshot()) is not None
        }
        return self._count, self._pages.snapshot(), deadlines_of, self.panes.snapshot()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over an earlier ``snapshot``."""
        self._count, pages, deadlines_of, panes = state
        self._pages.restore(pages)
        self.panes.restore(panes)
        for domain, deadlines in self._deadlines.items():
            deadlines.restore(deadlines_of.get(domain))
        self.touched.clear()
        self.live.clear()

    def _load(self, key: Any) -> None:
        if key not in self._numbers:
            self._pages.load(self._pages.number_of(key))

    def _place(self, key: Any) -> int:
        """The page of ``key``, which is in it from now on."""
        if key not in self._numbers:
            number = self._pages.number_of(key)
            self._pages.load(number)
            if key not in self._numbers:
                self._pages.add(key, number)
                self._count += 1
                if self._count > _CROWDED * self._pages.count:
                    self._grow()
        return self._numbers[key]

    def _held(self, page: Page) -> list[Any]:
        """The keys of a page that are more than a place left empty."""
        if self.remembers:
            return list(page)
        columns = [column for name, column in self._pages.columns.items() if name is not None]
        return [key for key in page if self._entries.get(key) or any(key in column for column in columns)]

    def _grow(self) -> None:
        for number in self._pages.grow(self._count):
            page = self._pages.load(number)
            for domain, deadlines in self._deadlines.items():
                if (first := self._earliest(page, domain)) is not None:
                    deadlines.hasten(number, first)

    def _drop_empty(self) -> None:
        entries = self._entries
        for number in self._pages.changed:
            page = self._pages.load(number)
            for key in [key for key in page if key in entries and not entries[key]] if entries else ():
                del entries[key]
            if not self.remembers:
                self._count -= self._pages.drop_empty(page)

    def _earliest(self, page: Page, domain: int) -> int | None:
        entries = self._entries
        if not entries:
            return None
        firsts = (deadlines[0] for key in page if (deadlines := entries.get(key, _EMPTY).get(domain)))
        return min(firsts, default=None)
