"""How handles of jobs wait that know their failure when they have ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta

from dsv2.arguments import as_seconds
from dsv2.errors import Dsv2Error
from dsv2.runtime.report.job_waiting import Keeper
from dsv2.tracebacks import short_traceback
from dsv2.unfinished import asked

__all__ = ("EndingJob",)


class EndingJob(ABC):
    """Part of a ``JobHandle``."""

    _keeper: Keeper
    _failure: Dsv2Error | None

    @abstractmethod
    def _ends_within(self, seconds: float | None) -> bool:
        """Wait for the end, no longer than ``seconds`` (None: without a limit). Returns whether it has come."""

    @short_traceback
    def await_termination(self, timeout: timedelta | None = None) -> bool:
        """Wait until the job ends; False if ``timeout`` passed first. Raises the error that the job failed with."""
        with self._keeper.waiting():
            if not self._ends_within(as_seconds(timeout, "timeout")):
                return False
        asked(self)
        if self._failure is not None:
            raise self._failure
        return True
