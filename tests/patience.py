"""Sources of systems that push messages, in tests that know how many messages are certain to come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from dsv2.connectors.received import ReceivedDiscovery, ReceivedSplit, Receiver
from dsv2.sources import Portion
from dsv2.testing.connectors.source_run import SourceRun
from tests.support import wait_until

SECONDS = timedelta(seconds=30)


class PatientDiscovery(ReceivedDiscovery):
    """Waits for the messages that are certain to come, as the suite plans micro-batches at once.

    Args:
        receiver: The receiver.
        total: Returns the number of messages that were sent.
    """

    def __init__(self, receiver: Receiver, total: Callable[[], int]) -> None:
        super().__init__(receiver)
        self._total = total

    def advance(self, split: ReceivedSplit, limit: int | None, /) -> Portion[ReceivedSplit] | None:
        if not self._is_started:
            super().advance(split, 0)
            self.ready((), None)
        if split.count < self._total():
            assert self.wait([split], SECONDS), f"Nothing came after {split}."
        return super().advance(split, limit)


def receiver_of(run: SourceRun) -> Any:
    """The receiver of a source whose first micro-batch was planned."""
    return run.driver._enumerator._discovery._receiver  # type: ignore[attr-defined]


def received(run: SourceRun, count: int, limit: int | None = None) -> list[Any]:
    """Read micro-batches until there are ``count`` records. With a ``limit``, all but the last one have so many."""
    found = run.batch(limit)
    while len(found) < count:
        if limit is None:
            assert run.driver.wait(SECONDS)
            found += run.batch()
        else:
            size = min(limit, count - len(found))
            wait_until(lambda: len(receiver_of(run)._inbox) >= size)  # noqa: B023 - called at once
            found += run.batch(size)
    return found
