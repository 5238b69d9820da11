"""The contexts of functions on tables, which also give access to states and timers of all keys."""

from __future__ import annotations

from typing import Any

from dsv2.runtime.operator.contexts import NonPartitioned, Partitioned
from dsv2.spi import KeyedColumns


class _WithColumns:
    """Adds the columns of all keys to a context."""

    def __init__(self, columns: KeyedColumns, *parts: Any) -> None:
        super().__init__(*parts)
        self.columns = columns
        self.keyed_state = columns.keyed_state
        self.event_timers = columns.event_timers
        self.processing_timers = columns.processing_timers


class ColumnarNonPartitioned(_WithColumns, NonPartitioned):
    """``ArrowNonPartitionedContext``."""


class ColumnarPartitioned(_WithColumns, Partitioned):
    """``ArrowContext``."""
