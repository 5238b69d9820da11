"""Side outputs as extensions use them: with a timestamp other than that of the current record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv2.errors import InternalError
from dsv2.model.output_tag import OutputTag


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
