"""A source for tests of whole jobs that interrupts the job at given positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from dsv2.base.type_variables import T
from dsv2.errors import ConfigurationError
from dsv2.sources import CollectionSource, ReadSchedule
from dsv2.testing.interruptions import Crash, InterruptedReading, Interruption, Pause, Stop


class TestSource(CollectionSource[T], Generic[T]):
    """Reads a sequence of records, and interrupts the job at each ``Pause``, ``Stop`` and ``Crash`` among them.

    A micro-batch ends before each interruption, so all earlier records have been processed completely. A job that is
    restarted from its checkpoint continues after the interruption. BATCH jobs ignore interruptions.

    With ``Trigger.available_now()``, a pause suspends the whole job. With other triggers, the job continues without
    data: timers fire, sources become idle, and after a ``Stop`` the job runs until it is stopped.

    Args:
        items: Records and interruptions.
        records_per_batch: The maximum number of records in a micro-batch. None: no limit.

    Raises:
        ConfigurationError: There are two interruptions at the same position.
    """

    __test__ = False  # pytest must not collect this class

    def __init__(self, items: Iterable[T | Interruption], *, records_per_batch: int | None = None) -> None:
        records: list[T] = []
        self._interruptions: dict[int, Interruption] = {}
        for item in items:
            if not isinstance(item, Pause | Stop | Crash):
                records.append(item)
            elif self._interruptions.setdefault(len(records), item) is not item:
                raise ConfigurationError(
                    f"There are two interruptions before record {len(records)}. Only one is allowed per position."
                )
        super().__init__(records, records_per_batch=records_per_batch)
        if len(records) in self._interruptions:
            self.count = len(records) + 1  # delays the end of input until after the interruption

    def schedule(self, described: str) -> ReadSchedule | None:
        return InterruptedReading(self._interruptions, described) if self._interruptions else None
