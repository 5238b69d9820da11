"""Short forms for durations in tests."""

from __future__ import annotations

from datetime import timedelta

# Seconds until a hanging test fails. The timeout in pyproject.toml is longer, so the failure says what was awaited.
# On a busy machine, a job on Spark needs more than a minute to its first micro-batch.
LONG = 240.0


def ms(milliseconds: float) -> timedelta:
    """A duration in milliseconds."""
    return timedelta(milliseconds=milliseconds)
