"""The runtime's collector, as extensions use it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Any

from dsv2.errors import InternalError
from dsv2.spi.kinds import EmitBatch


class StampingCollector(ABC):
    """Emits records with explicit timestamps, one by one or in batches."""

    __slots__ = ()

    collect_stamped: Callable[[Any, int | None], object]
    """Emits a record with a timestamp in ms, or None."""
    emit_batch: EmitBatch | None
    """Emits a batch. None if each record must be checked when it is emitted."""
    collect_and_overwrite_timestamp: Callable[[Any, int], object]


def stamping_collector(output: object) -> StampingCollector:
    """Return the collector of a callback as a ``StampingCollector``.

    Raises:
        InternalError: ``output`` is not the collector of a runtime.
    """
    if not isinstance(output, StampingCollector):
        raise InternalError(f"{type(output).__qualname__} is not the collector of a runtime.")
    return output
