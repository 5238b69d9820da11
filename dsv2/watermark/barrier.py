"""Limits for the waiting of barriers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from dsv2.checks.arguments import as_choice, as_milliseconds, is_whole_number
from dsv2.errors import WatermarkDeclarationError


class WhenExceeded(Enum):
    """The consequence when a barrier has waited for too long, or holds too many records.

    ``FAIL``: The job fails. The error names the channels that are missing.
    ``PROCEED``: The barrier is delivered without them. If their barrier arrives later, their records before it were
    late: they belong to a later part than they should.
    """

    FAIL = "fail"
    PROCEED = "proceed"


@dataclass(frozen=True, slots=True)
class BarrierWait:
    """Marks a watermark declaration as a barrier, and limits how long it waits. ``barrier`` of a builder creates it.

    Attributes:
        timeout_ms: For how long a channel may be blocked, in ms of processing time. None: forever.
        max_records: How many records a subtask may hold behind the barrier. None: any number.
        when_exceeded: What happens beyond either limit.
    """

    timeout_ms: int | None = None
    max_records: int | None = None
    when_exceeded: WhenExceeded = WhenExceeded.FAIL

    def __str__(self) -> str:
        limits = [] if self.timeout_ms is None else [f"for at most {timedelta(milliseconds=self.timeout_ms)}"]
        limits += [] if self.max_records is None else [f"holds at most {self.max_records:,} records"]
        if not limits:
            return "waits without a limit"
        then = "then the job fails" if self.when_exceeded is WhenExceeded.FAIL else "then proceeds"
        return f"waits {' and '.join(limits)}, {then}"

    @staticmethod
    def of(timeout: timedelta | None, max_records: int | None, when_exceeded: WhenExceeded | str) -> BarrierWait:
        """Check the arguments that a user passed.

        Raises:
            WatermarkDeclarationError: One of them is invalid, or there is no limit to exceed.
        """
        error = WatermarkDeclarationError
        chosen = as_choice(WhenExceeded, when_exceeded, "when_exceeded", error=error)
        timeout_ms = None if timeout is None else as_milliseconds(timeout, "timeout", at_least=1, error=error)
        if max_records is not None and not (is_whole_number(max_records) and max_records >= 0):
            raise error(f"max_records must be a whole number of 0 or more, or None, not {max_records!r}.")
        if chosen is WhenExceeded.PROCEED and timeout is None and max_records is None:
            raise error("when_exceeded='proceed' needs a limit: pass timeout or max_records as well.")
        return BarrierWait(timeout_ms, max_records, chosen)
