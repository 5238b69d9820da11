"""A collector and a context for results with a timestamp other than that of the current record."""

from __future__ import annotations

from typing import Generic, Self

from dsv2.base.type_variables import OUT
from dsv2.model.context import Collector, RuntimeContext
from dsv2.spi import StampedSideOutput, stamping_collector


class _StampedContext:
    """The context of join functions."""

    def __init__(self, ctx: RuntimeContext, side_output: StampedSideOutput) -> None:
        self.job_info = ctx.job_info
        self.task_info = ctx.task_info
        self.metric_group = ctx.metric_group
        self.output = side_output.output


class Stamping(Generic[OUT]):
    """Wraps the collector and the context of a function and assigns a given timestamp to the results."""

    __slots__ = ("_collect_stamped", "_output", "_side_output", "_timestamp", "ctx")

    def __init__(self, output: Collector[OUT], ctx: RuntimeContext) -> None:
        self._output = output
        self._collect_stamped = stamping_collector(output).collect_stamped
        self._side_output = StampedSideOutput(ctx)
        self._timestamp: int | None = None
        self.ctx: RuntimeContext = _StampedContext(ctx, self._side_output)

    def at(self, timestamp: int | None) -> Self:
        """Assign ``timestamp`` (ms), if any, to the records emitted from now on."""
        self._timestamp = self._side_output.timestamp = timestamp
        return self

    def collect(self, record: OUT) -> None:
        """Emit ``record`` with the assigned timestamp."""
        self._collect_stamped(record, self._timestamp)

    def collect_and_overwrite_timestamp(self, record: OUT, timestamp: int) -> None:
        """Emit ``record`` with ``timestamp`` (ms)."""
        self._output.collect_and_overwrite_timestamp(record, timestamp)
