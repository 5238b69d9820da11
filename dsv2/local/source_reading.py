"""Settings of a local run for the reading of sources."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings of a run for the reading of sources.

    Attributes:
        only_available: Whether unbounded sources are read only as far as they were available at the start.
        target_batch_ms: The target duration of a micro-batch. None: it has none.
    """

    only_available: bool = False
    target_batch_ms: int | None = None
