"""Panes: what all keys of a subtask have in one window, for windows that begin and end for all keys at once.

A pane has one deadline, where a timer for each key would be as many as there are keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_store import PageStore, PageStores
from dsv2.runtime.state.pages import PagedMap
from dsv2.spi import Pane, Panes

__all__ = ("PagedPane", "PagedPanes")


class PagedPane(PagedMap, Pane):
    """``Pane``, in pages.

    ``deadline`` (ms): when the function wants to hear of it. ``layout``: by what rule things were put into it; plain
    values, for functions whose next program may have another.
    """

    __slots__ = ("by_event", "deadline", "layout", "slot")

    def __init__(
        self,
        codec: Codec,
        owner: str,
        store: PageStore,
        slot: int,
        deadline: int,
        by_event: bool,
        layout: tuple[int, ...],
    ) -> None:
        super().__init__(codec, owner, store)
        self.slot = slot
        self.deadline = deadline
        self.by_event = by_event
        self.layout = layout


class PagedPanes(Panes):
    """``Panes``, with their deadlines."""

    def __init__(self, codec: Codec, owner: str, stores: PageStores) -> None:
        self._codec = codec
        self._owner = owner
        self._stores = stores
        self._panes: dict[int, PagedPane] = {}
        # By event time or not. Of the same deadline the later window comes first: it fires, while the other one goes.
        self._heaps: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self.get: Callable[[int], PagedPane | None] = self._panes.get

    def __iter__(self) -> Iterator[PagedPane]:
        return iter(list(self._panes.values()))

    def open(self, slot: int, deadline: int, by_event: bool, layout: tuple[int, ...] = ()) -> PagedPane:
        """A new pane. ``by_event``: the deadline is one of event time, not of processing time."""
        pane = self._new_pane(slot, deadline, by_event, layout)
        heappush(self._heaps[by_event], (deadline, -slot))
        return pane

    def hasten(self, pane: PagedPane, deadline: int) -> None:
        """Give ``pane`` an earlier deadline. (A later one may just be put into it.)"""
        pane.deadline = deadline
        heappush(self._heaps[pane.by_event], (deadline, -pane.slot))

    def drop(self, slot: int) -> None:
        """Forget a pane."""
        self._panes.pop(slot).discard()

    def next_due(self, by_event: bool) -> PagedPane | None:
        """The pane with the earliest deadline of that time."""
        heap = self._heaps[by_event]
        while heap:
            deadline, slot = heap[0]
            pane = self._panes.get(-slot)
            if pane is None or pane.deadline < deadline:
                heappop(heap)
            elif pane.deadline > deadline:
                heapreplace(heap, (pane.deadline, slot))
            else:
                return pane
        return None

    def next_deadline(self, by_event: bool) -> int | None:
        """The earliest deadline of that time."""
        pane = self.next_due(by_event)
        return None if pane is None else pane.deadline

    def snapshot(self) -> dict[int, tuple[Any, ...]]:
        """Everything as plain values and bytes."""
        return {
            slot: (pane.deadline, pane.by_event, pane.layout, pane.snapshot())
            for slot, pane in sorted(self._panes.items())
        }

    def restore(self, state: dict[int, tuple[Any, ...]]) -> None:
        """Take over an earlier ``snapshot``."""
        self._panes.clear()
        self._heaps = {True: [], False: []}
        for slot, (deadline, by_event, layout, content) in state.items():
            self._new_pane(slot, deadline, by_event, layout).restore(content)
            self._heaps[by_event].append((deadline, -slot))
        for heap in self._heaps.values():
            heapify(heap)

    def _new_pane(self, slot: int, deadline: int, by_event: bool, layout: tuple[int, ...]) -> PagedPane:
        store = self._stores(f"pane/{slot}", self._owner)
        pane = self._panes[slot] = PagedPane(self._codec, self._owner, store, slot, deadline, by_event, layout)
        return pane
