"""Panes hold the values of all keys of a subtask in one window, for windows with the same bounds for all keys.

A pane has one deadline instead of a timer for each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_store import PageStore, PageStores
from dsv2.runtime.state.pages import PagedMap
from dsv2.spi import Pane, Panes


class PagedPane(PagedMap, Pane):
    """``Pane``, stored in pages.

    Args:
        codec: Serializes pages.
        owner: Names the state in error messages.
        store: Stores the pages.
        slot: The window.
        deadline: When the function is called for the pane, in ms.
        by_event: Whether ``deadline`` is in event time.
        layout: How the function organizes the pane, as integers, in case a restarted program does it differently.
        new_dict: Creates the dict of values.
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
        new_dict: Callable[[], dict[Any, Any]],
    ) -> None:
        super().__init__(codec, owner, store, new_dict)
        self.slot = slot
        self.deadline = deadline
        self.by_event = by_event
        self.layout = layout


class PagedPanes(Panes):
    """``Panes``, with their deadlines."""

    def __init__(
        self, codec: Codec, owner: str, stores: PageStores, new_dict: Callable[[], dict[Any, Any]] = dict
    ) -> None:
        self._new_dict = new_dict
        self._codec = codec
        self._owner = owner
        self._stores = stores
        self._panes: dict[int, PagedPane] = {}
        # By time domain. At the same deadline the later window is first: it fires, whereas the earlier one is removed.
        self._heaps: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self.get: Callable[[int], PagedPane | None] = self._panes.get

    def __iter__(self) -> Iterator[PagedPane]:
        return iter(list(self._panes.values()))

    def open(self, slot: int, deadline: int, by_event: bool, layout: tuple[int, ...] = ()) -> PagedPane:
        """Create a pane. ``by_event``: whether the deadline is in event time rather than processing time."""
        pane = self._new_pane(slot, deadline, by_event, layout)
        heappush(self._heaps[by_event], (deadline, -slot))
        return pane

    def unscheduled(self, slot: int) -> PagedPane:
        """Return the pane of a window, creating it without a deadline. ``schedule`` must follow."""
        pane = self._panes.get(slot)
        return self._new_pane(slot, 0, True, ()) if pane is None else pane  # an existing pane may be empty

    def schedule(self, slot: int, deadline: int, by_event: bool, layout: tuple[int, ...]) -> None:
        """Set what ``unscheduled`` left out."""
        pane = self._panes[slot]
        pane.deadline, pane.by_event, pane.layout = deadline, by_event, layout
        heappush(self._heaps[by_event], (deadline, -slot))

    def hasten(self, pane: PagedPane, deadline: int) -> None:
        """Give ``pane`` an earlier deadline. (To postpone it, assign ``pane.deadline``.)"""
        pane.deadline = deadline
        heappush(self._heaps[pane.by_event], (deadline, -pane.slot))

    def drop(self, slot: int) -> None:
        """Remove a pane."""
        self._panes.pop(slot).discard()

    def next_due(self, by_event: bool) -> PagedPane | None:
        """Return the pane with the earliest deadline in a time domain, or None."""
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
        """Return the earliest deadline in a time domain, or None."""
        pane = self.next_due(by_event)
        return None if pane is None else pane.deadline

    def snapshot(self) -> dict[int, tuple[Any, ...]]:
        """Return the state as built-in values and bytes."""
        return {
            slot: (pane.deadline, pane.by_event, pane.layout, pane.snapshot())
            for slot, pane in sorted(self._panes.items())
        }

    def restore(self, state: dict[int, tuple[Any, ...]]) -> None:
        """Restore a ``snapshot``."""
        self._panes.clear()
        self._heaps = {True: [], False: []}
        for slot, (deadline, by_event, layout, content) in state.items():
            self._new_pane(slot, deadline, by_event, layout).restore(content)
            self._heaps[by_event].append((deadline, -slot))
        for heap in self._heaps.values():
            heapify(heap)

    def _new_pane(self, slot: int, deadline: int, by_event: bool, layout: tuple[int, ...]) -> PagedPane:
        store = self._stores(f"pane/{slot}", self._owner)
        pane = self._panes[slot] = PagedPane(
            self._codec, self._owner, store, slot, deadline, by_event, layout, self._new_dict
        )
        return pane
