"""The readers of sources in worker processes, as their planners use them."""

from __future__ import annotations

from operator import methodcaller

from dsv2.local.task_group import Place
from dsv2.local.workers.messages import ReaderOrders
from dsv2.runtime.sources.offsets import ReaderOrder


class RemoteReader:
    """A reader at ``place`` in a worker process (``IndexedReader`` or ``SplitReader``)."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._calls: list[methodcaller] = []

    def take_orders(self) -> ReaderOrders:
        """Return and remove the calls for the reader."""
        calls, self._calls = self._calls, []
        return ReaderOrders(self._place, calls)

    def resume(self, position: int, *, ended: bool) -> None:
        """Continue a source after its first ``position`` records."""
        self._calls.append(methodcaller("resume", position, ended=ended))

    def begin_batch(self, stop: int, *, is_last: bool) -> None:
        """Begin a micro-batch that ends before record ``stop`` of the source. ``is_last``: That is its end."""
        self._calls.append(methodcaller("begin_batch", stop, is_last=is_last))

    def follow(self, order: ReaderOrder) -> None:
        """Begin to execute ``order``."""
        self._calls.append(methodcaller("follow", order))
