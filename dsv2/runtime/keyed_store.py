"""The keyed state of one operator in one subtask: pages of entries, decoded only when one of their keys is touched.

The cost of a micro-batch follows the keys that it touches, not the keys that are held: untouched pages pass from one
snapshot to the next as bytes. The number of pages grows with the keys, so that a page stays small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsv2.errors import InvalidKeyError
from dsv2.runtime.codec import Codec
from dsv2.runtime.keys import stable_hash

__all__ = ("PagedKeyedStore",)

_KEYS_PER_PAGE = 64
_MAX_PAGES = 1 << 15


class PagedKeyedStore:
    """Maps keys to entries. An entry is any value that the codec takes; None marks a key that was merely seen."""

    def __init__(self, codec: Codec, owner: str) -> None:
        self._codec = codec
        self._owner = owner
        self._encoded: list[bytes] = [b""]
        self._decoded: dict[int, dict[Any, Any]] = {}
        self._dirty: set[int] = set()
        self._count = 0
        self.touched: set[Any] = set()

    def __len__(self) -> int:
        return self._count

    def touch(self, key: Any) -> None:
        """Note that ``key`` was seen. Callers skip the call for keys that are in ``touched``.

        Raises ``InvalidKeyError`` for None and for types that cannot be keys.
        """
        if key is None:
            raise InvalidKeyError("The assigned key must not be None.")
        if key not in self._page(key):
            self.put(key, None)
        self.touched.add(key)

    def get(self, key: Any) -> Any:
        """The entry of ``key``, or None. A caller that changes the entry in place must ``put`` it again."""
        return self._page(key).get(key)

    def put(self, key: Any, entry: Any) -> None:
        """Set the entry of ``key``."""
        number = self._number(key)
        page = self._load(number)
        if key not in page:
            self._count += 1
        page[key] = entry
        self._dirty.add(number)
        if self._count > _KEYS_PER_PAGE * len(self._encoded) and len(self._encoded) < _MAX_PAGES:
            self._grow()

    def remove(self, key: Any) -> None:
        """Forget ``key``; nothing happens if it is not there."""
        number = self._number(key)
        if self._load(number).pop(key, self) is not self:
            self._count -= 1
            self._dirty.add(number)
        self.touched.discard(key)

    def __iter__(self) -> Iterator[Any]:
        """Every key of this moment, page by page, whatever is added or removed meanwhile."""
        yield from [key for number in range(len(self._encoded)) for key in self._load(number)]

    def snapshot(self) -> tuple[int, list[bytes]]:
        """Number of keys and the pages as bytes; encodes only the pages that changed."""
        for number in sorted(self._dirty):
            page = self._decoded[number]
            self._encoded[number] = self._codec.dumps(page) if page else b""
        self._dirty.clear()
        return self._count, list(self._encoded)

    def restore(self, state: tuple[int, list[bytes]]) -> None:
        """Take over an earlier ``snapshot``."""
        self._count, self._encoded = state[0], list(state[1])
        self._decoded.clear()
        self._dirty.clear()
        self.touched.clear()

    def _number(self, key: Any) -> int:
        # The high half: the low bits chose the subtask, so within one subtask they are much alike.
        return (stable_hash(key) >> 16) & (len(self._encoded) - 1)

    def _page(self, key: Any) -> dict[Any, Any]:
        return self._load(self._number(key))

    def _load(self, number: int) -> dict[Any, Any]:
        page = self._decoded.get(number)
        if page is None:
            data = self._encoded[number]
            page = self._decoded[number] = self._codec.loads(data, self._owner) if data else {}
        return page

    def _grow(self) -> None:
        entries = [item for number in range(len(self._encoded)) for item in self._load(number).items()]
        pages = len(self._encoded) * 4
        self._encoded = [b""] * pages
        self._decoded = {number: {} for number in range(pages)}
        self._dirty = set(range(pages))
        for key, entry in entries:
            self._decoded[self._number(key)][key] = entry
