"""A source for tests of whole jobs: its input says where the job is to be interrupted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from dsv2.errors import ConfigurationError
from dsv2.sources import CollectionSource, ReadSchedule
from dsv2.testing.interruptions import Crash, InterruptedReading, Interruption, Pause, Stop

__all__ = ("TestSource",)

T = TypeVar("T")


class TestSource(CollectionSource[T], Generic[T]):
    """The records in ``items``, in order; each ``Pause``, ``Stop`` and ``Crash`` between them interrupts the job.

    What stands before one of these has been processed completely when it happens: a micro-batch ends there. When a job
    goes on from its checkpoint, the place where it starts has been passed. A BATCH job, which reads everything in one
    go, takes no notice of them. With ``Trigger.available_now()`` a pause holds the whole job; under another trigger it
    goes on without data, timers fire and sources fall idle, and after a stop it waits until it is told to end.
    Raises ``ConfigurationError`` for two interruptions in one place.
    """

    __test__ = False  # for pytest, to which the name says something else

    def __init__(self, items: Iterable[T | Interruption], *, records_per_batch: int | None = None) -> None:
        records: list[T] = []
        self._interruptions: dict[int, Interruption] = {}
        for item in items:
            if not isinstance(item, Pause | Stop | Crash):
                records.append(item)
            elif self._interruptions.setdefault(len(records), item) is not item:
                raise ConfigurationError(f"One interruption at a time: there are two before record {len(records)}.")
        super().__init__(records, records_per_batch=records_per_batch)
        if len(records) in self._interruptions:
            self.count = len(records) + 1  # so that the end of input is not there before

    def schedule(self, described: str) -> ReadSchedule | None:
        return InterruptedReading(self._interruptions, described) if self._interruptions else None
