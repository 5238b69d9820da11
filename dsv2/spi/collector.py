"""The collector of a runtime as extensions see it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Any

from dsv2.errors import InternalError
from dsv2.spi.kinds import EmitBatch

__all__ = ("StampingCollector", "stamping_collector")


class StampingCollector(ABC):
    """Emits records with timestamps of their own, and many at once."""

    __slots__ = ()

    collect_stamped: Callable[[Any, int | None], object]
    """Takes a record and its timestamp in ms, or None."""
    emit_batch: EmitBatch | None
    """None if each record has to be looked at when it is emitted."""
    collect_and_overwrite_timestamp: Callable[[Any, int], object]


def stamping_collector(output: object) -> StampingCollector:
    """The collector of a callback, as extensions see it."""
    if not isinstance(output, StampingCollector):
        raise InternalError(f"{type(output).__qualname__} is not the collector of a runtime.")
    return output
