"""One difference between the program that wrote stored state and the program that is to continue from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """A difference that prevents a restart from the same checkpoint.

    Attributes:
        subject: What has changed: the uid of an operator, the identifier of a watermark, or a part of the program.
        text: Describes the difference. For an operator, it names the uid and the user's file and line.
        carried: Whether a start from a savepoint, which transfers the state to a new checkpoint, carries the change.
        advice: How else the program can continue, or None.
        drops_state: Whether the start from a savepoint drops state.
        location: The line of the program that a warning points to. Empty: there is none.
    """

    subject: str
    text: str
    carried: bool
    advice: str | None = None
    drops_state: bool = False
    location: str = ""

    def __str__(self) -> str:
        return self.text if self.advice is None else f"{self.text}; {self.advice}"


def listed(differences: Iterable[Difference]) -> str:
    """Format differences for an error: one per line, each with what a savepoint does about it."""
    return "\n".join(f"  - {difference}. {_of_savepoint(difference)}" for difference in differences)


def _of_savepoint(difference: Difference) -> str:
    if not difference.carried:
        return "A savepoint does not carry this change."
    if difference.drops_state:
        return "A savepoint carries this change with allow_dropped_state=True."
    return "A savepoint carries this change."
