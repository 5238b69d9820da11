"""Keys and what belongs to them, cut into pages of bytes: a page is decoded only when one of its keys is asked for.

Untouched pages stay where they are. The number of pages grows with the keys, so that a page stays small, and by as many
as are needed (linear hashing): some keys more never mean that all pages are cut anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.runtime.state.page_store import PageStore

__all__ = ("KEYS_PER_PAGE", "Page", "PageCache", "PagedMap", "Pages", "encode_state")

KEYS_PER_PAGE = 32
_MULTIPLIER = 0xD6E8FEB86659FD93  # odd and without pattern: every bit of a hash has a say in the page
_ABSENT: Any = object()

Page: TypeAlias = dict[Any, Any]


class PageCache:
    """Pages as objects: those that were asked for. Whoever changes a page says so in ``changed``."""

    __slots__ = ("_codec", "_decoded", "_owner", "_store", "changed", "stored")

    def __init__(self, codec: Codec, owner: str, store: PageStore) -> None:
        self._codec = codec
        self._owner = owner
        self._store = store
        self._decoded: dict[int, Page] = {}
        self.changed: set[int] = set()
        self.stored: Collection[int] = ()
        """The numbers of the pages that the store has. All others are empty."""

    def load(self, number: int) -> Page:
        """Page ``number``, to look at and to change. Raises ``CorruptDataError`` if it is not what was stored."""
        page = self._decoded.get(number)
        if page is None:
            page = self._decoded[number] = self._stored_page(number) if number in self.stored else {}
        return page

    def save(self, stored: Collection[int]) -> dict[int, bytes]:
        """Encode what has changed; from now on the store has the pages ``stored``.

        Returns the part of them that goes into the state blob. Raises ``SerializationError`` naming a key whose values
        cannot be turned into bytes.
        """
        for number in sorted(self.changed):
            if number in stored:
                self._store.put(number, self._encode(self._decoded[number]))
            elif number in self.stored:
                self._store.remove(number)
        self.changed.clear()
        self.stored = stored
        return self._store.snapshot()

    def adopt(self, pages: Mapping[int, bytes], stored: Collection[int]) -> None:
        """Take over what an earlier ``save`` has returned, and the pages that were ``stored`` then."""
        self._decoded.clear()
        self.changed.clear()
        self._store.restore(pages)
        self.stored = stored

    def clear(self) -> None:
        """Forget all pages."""
        for number in self.stored:
            self._store.remove(number)
        self._decoded.clear()
        self.changed.clear()
        self.stored = ()

    def _stored_page(self, number: int) -> Page:
        data = self._store.get(number)
        if data is None:
            raise CorruptDataError(f"{self._owner}: page {number} is missing.")
        return self._decode(number, data)

    def _decode(self, number: int, data: bytes) -> Page:
        """Page ``number`` as an object; what else is to be done with it as it comes."""
        keys, values = self._codec.loads_columns(data, self._owner)
        return dict(zip(keys, values, strict=True))

    def _encode(self, page: Page) -> bytes:
        try:
            return self._codec.dumps_columns([list(page), list(page.values())])
        except SerializationError:
            for key, value in page.items():
                encode_state(self._codec, value, f"{self._owner}, key {shorten(key)}")
            raise


class Pages(PageCache):
    """The pages of one map, found by the hash of a key. Once any is stored, all ``count`` of them are."""

    __slots__ = ("_mask", "count")

    def __init__(self, codec: Codec, owner: str, store: PageStore) -> None:
        super().__init__(codec, owner, store)
        self.count = 1
        self._mask = 0  # the least power of two that is not below count, less one

    def __iter__(self) -> Iterator[Page]:
        """Every page, in order."""
        return map(self.load, range(self.count))

    def number_of(self, key: Any) -> int:
        """The page that ``key`` belongs to. Raises ``InvalidKeyError`` for types that cannot be keys."""
        # The low bits of the hash chose the subtask, so within one subtask they are much alike: it is mixed anew.
        number = stable_hash(key) * _MULTIPLIER >> 32 & self._mask
        return number if number < self.count else number & self._mask >> 1

    def grow(self, keys: int) -> range:
        """Be as many pages as ``keys`` need; the numbers of those that are new.

        They take what is now their own from pages that had it; the others are not touched.
        """
        before, count = self.count, min(-(-keys // KEYS_PER_PAGE), self._store.most)
        if count <= before:
            return range(0)
        divided = dict.fromkeys(map(self._place, range(before, count)))
        self._set_count(count)
        decoded = self._decoded
        decoded.update((number, {}) for number in range(before, count))
        for number in divided:
            page = self.load(number)
            for key, place in [(key, self.number_of(key)) for key in page]:
                if place != number:
                    decoded[place][key] = page.pop(key)
        self.changed.update(divided, range(before, count))
        return range(before, count)

    def clear(self) -> None:
        """Be one empty page, which is not stored."""
        super().clear()
        self._set_count(1)

    def snapshot(self) -> tuple[int, dict[int, bytes]]:
        """How many pages are stored, and the part of them that goes into the state blob."""
        pages = self.save(range(self.count) if self.changed else self.stored)
        return len(self.stored), pages

    def restore(self, state: tuple[int, dict[int, bytes]]) -> None:
        """Take over an earlier ``snapshot``."""
        stored, pages = state
        self.adopt(pages, range(stored))
        self._set_count(max(1, stored))

    def _place(self, number: int) -> int:
        """The page that now has what would be in page ``number``, if there were that many."""
        number &= self._mask
        return number if number < self.count else number & self._mask >> 1

    def _set_count(self, count: int) -> None:
        self.count = count
        self._mask = (1 << (count - 1).bit_length()) - 1


def encode_state(codec: Codec, value: Any, owner: str) -> bytes:
    """``value`` as bytes. Raises ``SerializationError`` that names ``owner`` and says what to do."""
    try:
        return codec.dumps(value)
    except SerializationError as error:
        raise SerializationError(
            f"{owner}: {shorten(value)} cannot be checkpointed. {error} Keep plain values in states, or what they can "
            f"be made from again."
        ) from error


class PagedMap:
    """Maps keys to values. Hot code looks into ``live`` and changes what it finds there; else it calls ``take``."""

    __slots__ = ("_pages", "_stored", "live")

    def __init__(self, codec: Codec, owner: str, store: PageStore) -> None:
        self.live: dict[Any, Any] = {}
        """Values that were touched since the last snapshot, which keeps what is in here then."""
        self._pages = Pages(codec, owner, store)
        self._stored = 0  # keys in pages

    def __iter__(self) -> Iterator[Any]:
        """Every key of this moment, in no particular but a repeatable order."""
        yield from [key for page in (self._pages if self._stored else ()) for key in page]
        yield from list(self.live)

    def take(self, key: Any, default: Any = None) -> Any:
        """The value of a ``key`` that is not in ``live``, moved there; ``default`` if there is none."""
        if not self._stored:
            return default
        number = self._pages.number_of(key)
        value = self._pages.load(number).pop(key, _ABSENT)
        if value is _ABSENT:
            return default
        self._stored -= 1
        self._pages.changed.add(number)
        self.live[key] = value
        return value

    def take_all(self) -> dict[Any, Any]:
        """``live``, with every value there is."""
        if self._stored:
            for page in self._pages:
                self.live.update(page)
            self._pages.clear()
            self._stored = 0
        return self.live

    def discard(self) -> None:
        """Take what is stored away. What is in ``live`` is left to whoever has it in hand."""
        self._pages.clear()
        self._stored = 0

    def snapshot(self) -> tuple[Any, ...]:
        """Everything as plain values and the pages as bytes."""
        pages = self._pages
        self._stored += len(self.live)
        if not self._stored:
            pages.clear()
        pages.grow(self._stored)
        for key, value in self.live.items():
            number = pages.number_of(key)
            pages.load(number)[key] = value
            pages.changed.add(number)
        self.live.clear()
        return self._stored, pages.snapshot()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over an earlier ``snapshot``."""
        self.live.clear()
        self._stored, pages = state
        self._pages.restore(pages)
