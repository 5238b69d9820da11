"""Keys and what belongs to them, cut into pages of bytes: a page is decoded only when one of its keys is asked for.

Untouched pages pass from one snapshot to the next as bytes. The number of pages grows with the keys, so that a page
stays small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from dsv2.errors import SerializationError
from dsv2.runtime.codec import Codec
from dsv2.runtime.keys import stable_hash
from dsv2.runtime.shortened import shorten

__all__ = ("Page", "PagedMap", "Pages", "encode_state")

_KEYS_PER_PAGE = 64
_MAX_PAGES = 1 << 15
_ABSENT: Any = object()

Page: TypeAlias = dict[Any, Any]


class Pages:
    """The pages of one map. Whoever changes a page says so in ``changed``."""

    __slots__ = ("_codec", "_decoded", "_encoded", "_owner", "changed", "count")

    def __init__(self, codec: Codec, owner: str) -> None:
        self._codec = codec
        self._owner = owner
        self._encoded: dict[int, bytes] = {}
        self._decoded: dict[int, Page] = {}
        self.count = 1  # a power of two
        self.changed: set[int] = set()

    def __iter__(self) -> Iterator[Page]:
        """Every page, in order."""
        return map(self.load, range(self.count))

    def number_of(self, key: Any) -> int:
        """The page that ``key`` belongs to. Raises ``InvalidKeyError`` for types that cannot be keys."""
        # The high half: the low bits chose the subtask, so within one subtask they are much alike.
        return (stable_hash(key) >> 16) & (self.count - 1)

    def load(self, number: int) -> Page:
        """Page ``number``, to look at and to change."""
        page = self._decoded.get(number)
        if page is None:
            data = self._encoded.get(number)
            page = self._decoded[number] = self._codec.loads(data, self._owner) if data is not None else {}
        return page

    def grow(self, keys: int) -> bool:
        """Cut anew, if ``keys`` are too many for the pages there are."""
        count = self.count
        while keys > _KEYS_PER_PAGE * count and count < _MAX_PAGES:
            count *= 4
        if count == self.count:
            return False
        pages = list(self)
        self.count = count
        self._encoded = {}
        self._decoded = {number: {} for number in range(count)}
        self.changed = set(range(count))
        for page in pages:
            for key, value in page.items():
                self._decoded[self.number_of(key)][key] = value
        return True

    def clear(self) -> None:
        """Be one empty page."""
        self.count = 1
        self._encoded.clear()
        self._decoded.clear()
        self.changed.clear()

    def snapshot(self) -> tuple[int, dict[int, bytes]]:
        """The number of pages, and those that are not empty; encodes what has changed.

        Raises ``SerializationError`` naming a key whose values cannot be pickled.
        """
        for number in sorted(self.changed):
            page = self._decoded[number]
            if page:
                self._encoded[number] = self._encode(page)
            else:
                self._encoded.pop(number, None)
        self.changed.clear()
        return self.count, dict(self._encoded)

    def restore(self, state: tuple[int, dict[int, bytes]]) -> None:
        """Take over an earlier ``snapshot``."""
        self.clear()
        self.count, encoded = state
        self._encoded = dict(encoded)

    def _encode(self, page: Page) -> bytes:
        try:
            return self._codec.dumps(page)
        except SerializationError:
            for key, value in page.items():
                encode_state(self._codec, value, f"{self._owner}, key {shorten(key)}")
            raise


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

    def __init__(self, codec: Codec, owner: str) -> None:
        self.live: dict[Any, Any] = {}
        """Values that were touched since the last snapshot, which keeps what is in here then."""
        self._pages = Pages(codec, owner)
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

    def snapshot(self) -> tuple[Any, ...]:
        """Everything as plain values and the pages as bytes."""
        pages = self._pages
        self._stored += len(self.live)
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
