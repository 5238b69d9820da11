"""The runtime's collector, as extensions use it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Any

from dsv2.errors import InternalError
from dsv2.model.output_tag import OutputTag
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


class StampedSideOutput:
    """The ``output`` of contexts with an assigned timestamp."""

    __slots__ = ("_output_stamped", "timestamp")

    def __init__(self, ctx: object) -> None:
        """``ctx`` is a context of the runtime. Raises ``InternalError`` for any other."""
        output_stamped: Callable[[OutputTag[Any], Any, int | None], None] | None
        output_stamped = getattr(ctx, "output_stamped", None)
        if output_stamped is None:
            raise InternalError(f"{type(ctx).__qualname__} is not a context of a runtime.")
        self._output_stamped = output_stamped
        self.timestamp: int | None = None
        """In ms."""

    def output(self, tag: OutputTag[Any], record: Any) -> None:
        """Emit ``record`` to the side output ``tag``."""
        self._output_stamped(tag, record, self.timestamp)
