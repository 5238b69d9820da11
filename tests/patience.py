"""Sources of systems that push messages, in tests that know how many messages are certain to come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from dsv2.connectors.received import ReceivedDiscovery, ReceivedSplit, Receiver
from dsv2.sources import Portion
from dsv2.testing.connectors.source_run import SourceRun
from tests.durations import LONG

SECONDS = timedelta(seconds=LONG)
_TAKE = Receiver.take


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


def received(run: SourceRun, count: int, size: int | None = None) -> list[Any]:
    """Read micro-batches of ``size`` records until there are ``count`` records. Default: one micro-batch.

    Each waits until its records have arrived, so it does not depend on how fast that is. The limit of the source still
    applies.
    """
    found: list[Any] = []
    with patch.object(Receiver, "take", _take_all):
        while len(found) < count:
            found += run.batch(min(size or count, count - len(found)))
    return found


def _take_all(receiver: Any, limit: int) -> Sequence[tuple[str, str]]:
    """Wait for ``limit`` messages, or for a failure, and take them."""
    with receiver._changed:
        is_there = receiver._changed.wait_for(lambda: len(receiver._inbox) >= limit or receiver._failure, LONG)
        assert is_there, f"There are {len(receiver._inbox)} messages, and not {limit}."
        return _TAKE(receiver, limit)
