"""Classification of the outcome of a job under attack."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

__all__ = ("BAD", "Outcome", "classify")


class Outcome(Enum):
    """The possible outcomes."""

    RIGHT = "right"
    """The job ran to its end, and its output equals the oracle's."""
    NAMED = "refused"
    """The job failed with an error that names the cause."""
    WARNED = "warned"
    """The job succeeded with different output, and a warning in the log names the cause."""
    OPAQUE = "opaque"
    """The job failed with an error that does not name the cause."""
    WRONG = "wrong"
    """The job succeeded with different output."""
    HANGS = "hangs"
    """The job did not end."""


BAD = (Outcome.OPAQUE, Outcome.WRONG, Outcome.HANGS)


def classify(error: str | None, difference: str, names: Sequence[Sequence[str]]) -> Outcome:
    """Classify the outcome of a job that ended.

    Args:
        error: The error, if the job failed.
        difference: The difference from the expected output; empty if there is none.
        names: Groups of words. An error names the cause if it contains all words of one group.
    """
    if error is None:
        return Outcome.WRONG if difference else Outcome.RIGHT
    is_named = any(all(word in error for word in words) for words in names)
    return Outcome.NAMED if is_named else Outcome.OPAQUE
