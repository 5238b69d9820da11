"""What became of a job that was started under adverse conditions, in a word."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

__all__ = ("BAD", "Outcome", "classify")


class Outcome(Enum):
    """The possible outcomes."""

    RIGHT = "right"
    """It ran to its end, and the output equals the oracle's."""
    NAMED = "refused"
    """It failed with an error that names what is wrong."""
    WARNED = "warned"
    """It succeeded with another output, and a warning in the log names why."""
    OPAQUE = "opaque"
    """It failed with an error that does not."""
    WRONG = "wrong"
    """It succeeded with another output, or failed after it had written some."""
    HANGS = "hangs"
    """It did not end."""


BAD = (Outcome.OPAQUE, Outcome.WRONG, Outcome.HANGS)


def classify(error: str | None, difference: str, names: Sequence[Sequence[str]]) -> Outcome:
    """The outcome of a job that ended with ``error``, or None, and an output that differs by ``difference``.

    ``names``: each is a group of words; an error names what is wrong if it holds all words of one group.
    """
    if error is None:
        return Outcome.WRONG if difference else Outcome.RIGHT
    is_named = any(all(word in error for word in words) for words in names)
    return Outcome.NAMED if is_named else Outcome.OPAQUE
