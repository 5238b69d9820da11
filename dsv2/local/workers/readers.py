"""The readers of sources in worker processes, as their planners use them."""

from __future__ import annotations

from typing import Any

from dsv2.local.task_group import Place
from dsv2.local.workers.messages import ReaderOrders
from dsv2.runtime.sources.offsets import ReaderOrder


class RemoteReader:
    """A reader at ``place`` in a worker process."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ended = False
        self._calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def take_orders(self) -> ReaderOrders:
        """Return and remove the calls for the reader."""
        calls, self._calls = self._calls, []
        return ReaderOrders(self.place, calls)

    def complete(self) -> None:
        """Called after the micro-batch."""
        raise NotImplementedError


class RemoteIndexedReader(RemoteReader):
    """The reader of one subtask of an indexed source (``IndexedReads``). ``parallelism``: That of the source."""

    def __init__(self, place: Place, parallelism: int) -> None:
        super().__init__(place)
        self._parallelism = parallelism
        self._position = 0  # of the source
        self._stop = 0
        self._is_last = False

    @property
    def can_read(self) -> bool:
        """True if this micro-batch has further records, or the end of input."""
        own = range(self.place[1], self._stop, self._parallelism)
        return not self.ended and (self._is_last or any(index >= self._position for index in own[-1:]))

    def resume(self, position: int, *, ended: bool) -> None:
        """Continue a source after its first ``position`` records."""
        self._position, self.ended = position, ended
        self._calls.append(("resume", (position,), {"ended": ended}))

    def begin_batch(self, stop: int, *, is_last: bool) -> None:
        """Begin a micro-batch that ends before record ``stop`` of the source. ``is_last``: That is its end."""
        self._stop, self._is_last = stop, is_last
        self._calls.append(("begin_batch", (stop,), {"is_last": is_last}))

    def complete(self) -> None:
        self._position = self._stop
        self.ended = self.ended or self._is_last


class RemoteSplitReader(RemoteReader):
    """The reader of one subtask of a source with splits (``SplitReads``)."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._order: ReaderOrder | None = None

    @property
    def can_read(self) -> bool:
        """True if this micro-batch has further records, or the end of input."""
        return self._order is not None

    def follow(self, order: ReaderOrder) -> None:
        """Begin to execute ``order``."""
        self._order = order
        self._calls.append(("follow", (order,), {}))

    def complete(self) -> None:
        if self._order is not None:
            self.ended, self._order = self._order.last, None
