"""Keys and their values in pages of bytes. A page is decoded only when one of its keys is accessed.

Other pages stay encoded. The number of pages grows with the number of keys by linear hashing, so that pages stay small
and growth never rewrites all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.runtime.state.page_budget import decoded_size
from dsv2.runtime.state.page_store import PageStore

KEYS_PER_PAGE = 32
"""The number of keys in a page, unless a smaller number makes a page large enough."""
_FEWEST = 2  # as with fewer, many pages would be empty
_SAMPLE = 256  # keys from which the size of a page is estimated
_NOISE = 1.25  # by which sizes differ from one micro-batch to the next
_MOST_NOTED = 4  # times the size that pages should have
_MULTIPLIER = 0xD6E8FEB86659FD93  # odd and irregular, so that every bit of a hash affects the page
_ABSENT: Any = object()

Page: TypeAlias = dict[Any, Any]


class PageCache:
    """Decoded pages. Callers that change a page add its number to ``changed``."""

    __slots__ = ("_codec", "_decoded", "_loaded_bytes", "_owner", "_store", "changed", "stored")

    def __init__(self, codec: Codec, owner: str, store: PageStore) -> None:
        self._codec = codec
        self._owner = owner
        self._store = store
        self._decoded: dict[int, Page] = {}
        self._loaded_bytes = 0  # of the decoded pages, as they are stored
        self.changed: set[int] = set()
        self.stored: Collection[int] = ()
        """The numbers of the pages in the store. All others are empty."""

    @property
    def decoded_size(self) -> int:
        """The approximate memory of the decoded pages in bytes."""
        return decoded_size(self._loaded_bytes, len(self._decoded), 0, 0)

    def load(self, number: int) -> Page:
        """Return page ``number`` for reading and changing. Raises ``CorruptDataError`` if it is damaged or missing."""
        page = self._decoded.get(number)
        if page is None:
            page = self._decoded[number] = self._stored_page(number) if self._is_stored(number) else {}
        return page

    def save(self, stored: Collection[int]) -> dict[int, bytes]:
        """Encode the changed pages. From now on the store has the pages ``stored``.

        Returns:
            The part of the pages that is stored in the state blob.

        Raises:
            SerializationError: Values cannot be serialized; names their key.
        """
        for number in sorted(self.changed):
            if number in stored:
                self._put(number, self._decoded[number])
            elif number in self.stored:
                self._store.remove(number)
        self._forget()  # else all pages would be in memory in the end
        self.stored = stored
        return self._store.snapshot()

    def adopt(self, pages: Mapping[int, bytes], stored: Collection[int]) -> None:
        """Restore the result of a ``save``, with the pages that were ``stored``."""
        self._forget()
        self._store.restore(pages)
        self.stored = stored

    def clear(self) -> None:
        """Remove all pages."""
        for number in self.stored:
            self._store.remove(number)
        self._forget()
        self.stored = ()

    def _forget(self) -> None:
        """Drop the decoded pages."""
        self.changed.clear()
        self._decoded.clear()
        self._loaded_bytes = 0

    def _is_stored(self, number: int) -> bool:
        return number in self.stored

    def _put(self, number: int, page: Page) -> int:
        """Store a page and return its size in bytes."""
        data = self._encode(page)
        self._write(number, data)
        return len(data)

    def _write(self, number: int, data: bytes) -> None:
        """Store the page that was encoded last."""
        self._store.put(number, data)

    def _stored_page(self, number: int) -> Page:
        data = self._store.get(number)
        if data is None:
            raise CorruptDataError(f"{self._owner}: page {number} is missing.")
        self._loaded_bytes += len(data)
        return self._decode(number, data)

    def _decode(self, number: int, data: bytes) -> Page:
        """Decode page ``number``. Subclasses may do more when a page is loaded."""
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
    """The pages of one map, found by the hash of a key. Once one is stored, all ``count`` pages are.

    Attributes:
        count: The number of pages.
        keys_per_page: The number of keys that a page should have on average.
    """

    __slots__ = ("_mask", "_written_bytes", "_written_keys", "count", "keys_per_page")

    def __init__(self, codec: Codec, owner: str, store: PageStore) -> None:
        super().__init__(codec, owner, store)
        self.count = 1
        self.keys_per_page = KEYS_PER_PAGE
        self._written_bytes = self._written_keys = 0  # since the last snapshot
        self._mask = 0  # the smallest power of two >= count, minus one

    def __iter__(self) -> Iterator[Page]:
        """Iterate over all pages in order."""
        return map(self.load, range(self.count))

    def number_of(self, key: Any) -> int:
        """Return the page of ``key``. Raises ``InvalidKeyError`` for types that cannot be keys."""
        return self.page_of(mixed_hash(key))

    def page_of(self, mixed: int) -> int:
        """Return the page of keys by their mixed hash, or the page that holds the keys of one that does not exist."""
        number = mixed & self._mask
        return number if number < self.count else number & self._mask >> 1

    def learns(self, keys: int, in_memory: int) -> bool:
        """Return whether ``learn`` should be called: most ``keys`` are in memory, as when there were none before."""
        return self._store.page_bytes is not None and 0 < keys <= 2 * in_memory

    def learn(self, sample: Page) -> None:
        """Find out how many keys a page should have, from a ``sample`` of the keys in memory and their values."""
        in_large_pages = self._fitting(self._size_in_pages(sample, KEYS_PER_PAGE), len(sample))
        self._adapt(self._size_in_pages(sample, in_large_pages), len(sample))

    def grow(self, keys: int, in_memory: int) -> range:
        """Grow to the number of pages needed for a number of ``keys`` and return the numbers of the new pages.

        Keys move to the new pages from the pages that are split. The others are not touched.

        Args:
            keys: The number of keys.
            in_memory: How many of them are new or in decoded pages. As long as pages are too large, as many more are
                split as these keys would fill, so that a micro-batch does not split all of them.
        """
        before, count = self.count, -(-keys // self.keys_per_page)
        if self.stored and self.keys_per_page < KEYS_PER_PAGE:
            count = min(count, max(-(-keys // KEYS_PER_PAGE), before + -(-in_memory // self.keys_per_page)))
        count = min(count, self._store.most)
        if count <= before:
            return range(0)
        divided = dict.fromkeys(map(self.page_of, range(before, count)))
        self._set_count(count)
        decoded = self._decoded
        decoded.update((number, {}) for number in range(before, count))
        for number in divided:
            page = self.load(number)
            for key, mixed in zip(list(page), self._hashes_of(page), strict=True):
                if (place := self.page_of(mixed)) != number:
                    decoded[place][key] = page.pop(key)
        self.changed.update(divided, range(before, count))
        return range(before, count)

    def clear(self) -> None:
        """Reset to one empty page, which is not stored."""
        super().clear()
        self._set_count(1)
        self.keys_per_page = KEYS_PER_PAGE

    def snapshot(self) -> tuple[int, dict[int, bytes], int]:
        """Return the number of stored pages, the part of them in the state blob, and how many keys each should have."""
        pages = self.save(range(self.count) if self.changed else self.stored)
        self._check_size()
        return len(self.stored), pages, self.keys_per_page

    def restore(self, state: tuple[int, dict[int, bytes], int]) -> None:
        """Restore a ``snapshot``."""
        stored, pages, self.keys_per_page = state
        self.adopt(pages, range(stored))
        self._set_count(max(1, stored))

    def _hashes_of(self, page: Page) -> list[int]:
        """The mixed hashes of the keys of a page."""
        return list(map(mixed_hash, page))

    def _put(self, number: int, page: Page) -> int:
        size = super()._put(number, page)
        if self._store.page_bytes is not None:
            self._written_keys += len(page)
            self._written_bytes += self._noted(size)
        return size

    def _size_in_pages(self, sample: Page, keys_per_page: int) -> int:
        """Return the bytes of pages with the keys of a sample. Each page adds its own, such as names."""
        keys = iter(sample)
        size = 0
        while some := list(islice(keys, keys_per_page)):
            size += self._noted(len(self._encode({key: sample[key] for key in some})))
        return size

    def _noted(self, size: int) -> int:
        """Return the size of a page so far as it counts. A single huge value is no reason to split other pages."""
        assert self._store.page_bytes is not None
        return min(size, _MOST_NOTED * self._store.page_bytes)

    def _check_size(self) -> None:
        """Let pages have another number of keys if values have grown or shrunk."""
        if self._written_keys >= _SAMPLE:
            self._adapt(self._written_bytes, self._written_keys)
        self._written_bytes = self._written_keys = 0

    def _adapt(self, size: int, keys: int) -> None:
        """Adapt to ``keys`` keys that take ``size`` bytes."""
        fitting = self._fitting(size, keys)
        if not self.keys_per_page <= _NOISE * fitting <= _NOISE * _NOISE * self.keys_per_page:
            self.keys_per_page = fitting

    def _fitting(self, size: int, keys: int) -> int:
        assert self._store.page_bytes is not None
        return min(KEYS_PER_PAGE, max(_FEWEST, self._store.page_bytes * keys // size))

    def _set_count(self, count: int) -> None:
        self.count = count
        self._mask = (1 << (count - 1).bit_length()) - 1


def mixed_hash(key: Any) -> int:
    """Return a hash that chooses the page of ``key``. Raises ``InvalidKeyError`` for types that cannot be keys."""
    # Mix the hash again: keys of one subtask have similar low bits, because these chose the subtask.
    return stable_hash(key) * _MULTIPLIER >> 32


def page_of_hash(hashed: int, count: int) -> int:
    """Return which of ``count`` stored pages has the keys with a stable hash, as ``Pages.number_of`` does."""
    mask = (1 << (count - 1).bit_length()) - 1
    number = hashed * _MULTIPLIER >> 32 & mask
    return number if number < count else number & mask >> 1


def sampled(keys: Collection[Any]) -> Iterator[Any]:
    """Return some of ``keys``, from all parts of it."""
    return islice(keys, 0, None, 1 + len(keys) // _SAMPLE)


def encode_state(codec: Codec, value: Any, owner: str) -> bytes:
    """Serialize ``value``.

    Raises:
        SerializationError: It cannot be serialized; names ``owner``.
    """
    try:
        return codec.dumps(value)
    except SerializationError as error:
        raise SerializationError(
            f"{owner}: {shorten(value)} cannot be checkpointed. {error} Store plain values in states, or the data "
            f"from which objects can be recreated."
        ) from error


class PagedMap:
    """Maps keys to values. Hot code reads and changes values in ``live``, and calls ``take`` for other keys."""

    __slots__ = ("_pages", "_stored", "live")

    def __init__(
        self, codec: Codec, owner: str, store: PageStore, new_dict: Callable[[], dict[Any, Any]] = dict
    ) -> None:
        self.live: dict[Any, Any] = new_dict()
        """Values accessed since the last snapshot. The next snapshot stores them."""
        self._pages = Pages(codec, owner, store)
        self._stored = 0  # keys in pages

    def __iter__(self) -> Iterator[Any]:
        """Iterate over a snapshot of the keys, in an unspecified but deterministic order."""
        yield from [key for page in (self._pages if self._stored else ()) for key in page]
        yield from list(self.live)

    def __len__(self) -> int:
        return self._stored + len(self.live)

    @property
    def decoded_size(self) -> int:
        """The approximate memory in bytes that the next snapshot releases."""
        return decoded_size(0, 0, len(self.live), 0) + self._pages.decoded_size

    def take(self, key: Any, default: Any = None) -> Any:
        """Move the value of a ``key`` that is not in ``live`` there and return it; ``default`` if it has none."""
        if not self._stored:
            return default
        number = self._pages.number_of(key)
        value = self._pages.load(number).pop(key, _ABSENT)
        if value is _ABSENT:
            return default
        self._stored -= 1
        self._pages.changed.add(number)
        self.live.update({key: value})  # loads a value, which is not a change that is undone
        return self.live[key]

    def take_all(self) -> dict[Any, Any]:
        """Load all values into ``live`` and return it."""
        if self._stored:
            for page in self._pages:
                self.live.update(page)
            self._pages.clear()
            self._stored = 0
        return self.live

    def discard(self) -> None:
        """Remove the stored values. ``live`` stays valid for callers that hold it."""
        self._pages.clear()
        self._stored = 0

    def snapshot(self) -> tuple[Any, ...]:
        """Return the state as built-in values, with pages as bytes."""
        pages = self._pages
        self._stored += len(self.live)
        if not self._stored:
            pages.clear()
        if pages.learns(self._stored, len(self.live)):
            pages.learn({key: self.live[key] for key in sampled(self.live)})
        pages.grow(self._stored, len(self.live))
        for key, value in self.live.items():
            number = pages.number_of(key)
            pages.load(number)[key] = value
            pages.changed.add(number)
        self.live.clear()
        return self._stored, pages.snapshot()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore a ``snapshot``."""
        self.live.clear()
        self._stored, pages = state
        self._pages.restore(pages)
