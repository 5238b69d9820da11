"""Records for a function that takes many at once: as they come in frames, or gathered where they come one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dsv2.columnar import Columnar
from dsv2.functions import CollectAll
from dsv2.runtime.exchange.frames import MAX_FRAME_RECORDS, Timestamps
from dsv2.runtime.exchange.outputs import Collect, CollectStamped
from dsv2.runtime.report.metrics import DefaultCounter

__all__ = ("ColumnarCalls",)


class ColumnarCalls:
    """Calls ``process`` with runs of records."""

    def __init__(self, process: Callable[[Sequence[Any]], None]) -> None:
        self._process = process
        self._gathered: list[Any] = []

    def process(self, records: Sequence[Any]) -> None:
        """A run of records, behind those gathered."""
        self.process_gathered()
        self._process(records)

    def process_gathered(self) -> None:
        """What has been gathered; before whatever is to stand behind it."""
        if self._gathered:
            records, self._gathered[:] = self._gathered[:], []
            self._process(records)

    def collectors(self, tally: DefaultCounter) -> tuple[Collect, CollectStamped, CollectAll]:
        """For an operator chained upstream: gather single records. ``tally`` counts them."""
        gathered, append = self._gathered, self._gathered.append

        def collect(record: Any) -> None:
            tally.count += 1
            append(record)
            if len(gathered) >= MAX_FRAME_RECORDS:
                self.process_gathered()

        def collect_stamped(record: Any, timestamp: int | None) -> None:
            collect(record)

        def collect_all(records: Sequence[Any], timestamps: Timestamps) -> None:
            tally.count += len(records)
            if isinstance(records, Columnar):
                self.process(records)
                return
            gathered.extend(records)
            if len(gathered) >= MAX_FRAME_RECORDS:
                self.process_gathered()

        return collect, collect_stamped, collect_all
