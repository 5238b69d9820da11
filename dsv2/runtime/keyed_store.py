"""The keyed state of one operator in one subtask: entries by key in pages, and panes by window.

The cost of a micro-batch follows the keys that it touches, not the keys that are held. What has to happen at some time
(timers, expiry) is found by each page's earliest deadline, so nothing is ever scanned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from dsv2.errors import InvalidKeyError
from dsv2.runtime.codec import Codec
from dsv2.runtime.deadlines import Deadlines
from dsv2.runtime.page_store import PageStores, in_blob
from dsv2.runtime.pages import KEYS_PER_PAGE, Page, Pages
from dsv2.runtime.panes import Panes

__all__ = ("Domain", "Entry", "PagedKeyedStore")


class Domain:
    """Kinds of deadlines. An entry keeps those of a kind as a sorted list, under the kind's number."""

    EVENT_TIME: Final = 0
    PROCESSING_TIME: Final = 1
    EXPIRY: Final = 2


_CROWDED = 4 * KEYS_PER_PAGE
"""Pages so full are divided at once, or many timers would mean long walks; else once in a micro-batch, at its end."""

_DOMAINS = (Domain.EVENT_TIME, Domain.PROCESSING_TIME, Domain.EXPIRY)


Entry: TypeAlias = dict[Any, Any]
"""What is kept for one key: by name of a state its value, by ``Domain`` its deadlines. Nothing empty stays in it."""


class PagedKeyedStore:
    """Maps keys to entries.

    ``remember``: a key stays once it was touched, even if its entry is empty. Else a key goes with its last value.
    ``stores``: where its pages are between micro-batches.
    """

    def __init__(self, codec: Codec, owner: str, remember: bool = True, stores: PageStores = in_blob) -> None:
        self.remembers = remember
        self.panes = Panes(codec, owner, stores)
        self._pages = Pages(codec, owner, stores("keys", owner))  # from a key to its entry; None: it was seen
        self._count = 0
        self._deadlines = {
            domain: Deadlines(codec, owner, stores(f"deadlines/{domain}", f"{owner}, deadlines")) for domain in _DOMAINS
        }
        self.touched: set[Any] = set()
        self.live: dict[Any, Entry] = {}
        """Entries that ``entry`` has returned since the last snapshot: the short way for hot code."""
        self._found: dict[Any, Entry] = {}  # those that ``find`` has returned since then
        self._numbers: dict[Any, int] = {}  # the pages of those in ``live``

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        """Every key of this moment, page by page, whatever is added or removed meanwhile."""
        keys = [key for page in self._pages for key, entry in page.items() if entry or self.remembers]
        in_panes = dict.fromkeys(key for pane in self.panes for key in pane)
        yield from dict.fromkeys([*keys, *in_panes])

    def touch(self, key: Any) -> None:
        """Note that ``key`` was seen. Callers skip the call for keys that are in ``touched``.

        Raises ``InvalidKeyError`` for None and for types that cannot be keys.
        """
        if key is None:
            raise InvalidKeyError("The assigned key must not be None.")
        if self.remembers:
            number = self._pages.number_of(key)
            page = self._pages.load(number)
            if key not in page:
                page[key] = None
                self._added(number)
        self.touched.add(key)

    def entry(self, key: Any) -> Entry:
        """The entry of ``key``, made if there is none. What is changed in it is kept by the next ``snapshot``."""
        entry = self.live.get(key)
        if entry is None:
            number = self._numbers[key] = self._pages.number_of(key)
            page = self._pages.load(number)
            self._pages.changed.add(number)
            entry = page.get(key)
            if entry is None:
                entry = {}
                is_new = key not in page
                page[key] = entry
                if is_new:
                    self._added(number)
            self.live[key] = entry
        return entry

    def find(self, key: Any) -> Entry | None:
        """The entry of ``key`` to look at, or None."""
        entry = self._found.get(key)
        if entry is None:
            entry = self._pages.load(self._pages.number_of(key)).get(key)
            if entry is not None:
                self._found[key] = entry
        return entry

    def add_deadline(self, domain: int, key: Any, time: int) -> None:
        """Note a deadline that was put into the entry of ``key``."""
        number = self._numbers.get(key)
        if number is None:
            number = self._pages.number_of(key)
        self._deadlines[domain].hasten(number, time)

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
            for key, entry in self._pages.load(number).items():
                for deadline in entry.get(domain, ()) if entry else ():
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
                deadlines.put(number, _earliest(page, domain))
        if not self._count:
            self._pages.clear()
        self._numbers.clear()
        self._found.clear()
        self.live.clear()  # whoever changes an entry from now on has to ask for it again
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
        self._numbers.clear()
        self._found.clear()
        self.live.clear()

    def _added(self, number: int) -> None:
        self._count += 1
        self._pages.changed.add(number)
        if self._count > _CROWDED * self._pages.count:
            self._grow()

    def _grow(self) -> None:
        new = self._pages.grow(self._count)
        if new:
            self._numbers.clear()
        for number in new:
            page = self._pages.load(number)
            for domain, deadlines in self._deadlines.items():
                if (first := _earliest(page, domain)) is not None:
                    deadlines.hasten(number, first)

    def _drop_empty(self) -> None:
        for number in self._pages.changed:
            page = self._pages.load(number)
            for key in [key for key, entry in page.items() if entry is not None and not entry]:
                if self.remembers:
                    page[key] = None
                else:
                    del page[key]
                    self._count -= 1


def _earliest(page: Page, domain: int) -> int | None:
    firsts = (deadlines[0] for entry in page.values() if entry and (deadlines := entry.get(domain)))
    return min(firsts, default=None)
