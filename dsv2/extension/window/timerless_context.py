"""The context of window functions: that of the runtime without timers."""

from __future__ import annotations

from typing import Any, NoReturn

from dsv2.errors import ContractError
from dsv2.spi import StampedSideOutput


class _ClockOnly:
    """A ``ProcessingTimeManager`` without timers."""

    def __init__(self, manager: Any) -> None:
        self.current_time = manager.current_time

    def register_timer(self, timestamp: int) -> NoReturn:
        """Raise ``ContractError``."""
        raise ContractError(
            "Window functions cannot register timers. Fire windows earlier with WindowStrategy.with_early_firing, or "
            "write an event-time process function."
        )

    delete_timer = register_timer


class TimerlessContext:
    """``PartitionedContext`` of a window function with one or two outputs.

    Side outputs go to ``side_output``, or by default to that of ``ctx``.
    """

    def __init__(self, ctx: Any, side_output: StampedSideOutput | None = None) -> None:
        self._ctx = ctx
        self.output = ctx.output if side_output is None else side_output.output
        self.non_partitioned_context = ctx.non_partitioned_context
        self.processing_time_manager = _ClockOnly(ctx.processing_time_manager)
        self.state_manager = ctx.state_manager
        self.job_info = ctx.job_info
        self.task_info = ctx.task_info
        self.metric_group = ctx.metric_group

    @property
    def timestamp(self) -> int | None:
        """The timestamp of the current record or timer, in ms."""
        timestamp: int | None = self._ctx.timestamp
        return timestamp
