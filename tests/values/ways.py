"""A way that values take, and its outcome for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from dsv2.connectors.formats import FormatError
from dsv2.errors import CorruptDataError, Dsv2Error, InternalError
from tests.values.awkward import annotation_at, group_at, value_at
from tests.values.same import equal, exact

EXACT, EQUAL, REFUSED, NOT_SENT, WRONG = "exact", "equal", "refused", "not sent", "wrong"

# Sends the values at these positions. Returns what has arrived, by position.
Send = Callable[[Sequence[int]], Mapping[int, Any]]


class NotSentError(Exception):
    """A value that this way cannot be given, because a library or a schema of the user has no place for it."""


def together(positions: Sequence[int]) -> list[Sequence[int]]:
    """All values in one batch."""
    return [positions]


def of_one_type(positions: Sequence[int]) -> list[Sequence[int]]:
    """Values of one declared type in each batch."""
    batches: dict[str, list[int]] = {}
    for position in positions:
        batches.setdefault(str(annotation_at(position)), []).append(position)
    return list(batches.values())


def of_one_group(positions: Sequence[int]) -> list[Sequence[int]]:
    """Values of one group in each batch."""
    return [list(group) for _, group in groupby(positions, group_at)]


def different_keys(positions: Sequence[int]) -> list[Sequence[int]]:
    """No two equal values in one batch."""
    batches: list[dict[Any, int]] = []
    alone: list[Sequence[int]] = []
    for position in positions:
        key = value_at(position)
        try:
            batch = next((batch for batch in batches if key not in batch), None)
        except TypeError:  # it is not hashable
            alone.append([position])
            continue
        if batch is None:
            batches.append(batch := {})
        batch[key] = position
    return [*(list(batch.values()) for batch in batches), *alone]


class Way(NamedTuple):
    """A way that values take.

    Attributes:
        name: The name on the page.
        send: Sends values.
        batches: Divides values into those that are sent together.
    """

    name: str
    send: Send
    batches: Callable[[Sequence[int]], list[Sequence[int]]] = together


class Outcome(NamedTuple):
    """The fate of a value: it arrived as ``received``, or was refused with ``error``."""

    kind: str
    received: Any = None
    error: BaseException | None = None


def outcomes(
    way: Way, positions: Sequence[int], refused: Mapping[int, str], *, all_refused: bool
) -> dict[int, Outcome]:
    """Send values, and compare what arrives.

    Args:
        way: The way.
        positions: The positions of the values.
        refused: Those that are expected not to arrive, and therefore sent alone, with what is expected.
        all_refused: Whether to send all of these. If not, one stands for those of its group.
    """
    found: dict[int, Outcome] = {}
    for batch in way.batches([position for position in positions if position not in refused]):
        if batch:
            found.update(_sent(way, batch))
    first_of: dict[object, int] = {}
    for position, sign in refused.items():
        first = position if all_refused else first_of.setdefault((group_at(position).name, sign), position)
        found[position] = found[first] if first in found else _sent(way, [position])[position]
    return found


def _sent(way: Way, batch: Sequence[int]) -> dict[int, Outcome]:
    """The outcomes of a batch. One that fails is divided, until the values that are refused are alone."""
    try:
        received = way.send(batch)
    except Exception as error:
        if len(batch) == 1 and isinstance(error, NotSentError):
            return {batch[0]: Outcome(NOT_SENT)}
        if len(batch) == 1:
            return {batch[0]: Outcome(REFUSED if _is_refusal(error) else WRONG, error=error)}
        half = len(batch) // 2
        return {**_sent(way, batch[:half]), **_sent(way, batch[half:])}
    return {position: _compared(position, received) for position in batch}


def _is_refusal(error: Exception) -> bool:
    """Return whether an error refuses a value: not one that shows that something unreadable was written."""
    return isinstance(error, Dsv2Error | FormatError) and not isinstance(error, InternalError | CorruptDataError)


def _compared(position: int, received: Mapping[int, Any]) -> Outcome:
    if position not in received:
        return Outcome(WRONG, "nothing")
    sent, arrived = value_at(position), received[position]
    if exact(sent, arrived):
        return Outcome(EXACT, arrived)
    return Outcome(EQUAL if equal(sent, arrived) else WRONG, arrived)


def by_position(records: Iterable[Any]) -> dict[int, Any]:
    """Records with a position and a value as a mapping. What several subtasks have received must not differ."""
    received: dict[int, Any] = {}
    for record in records:
        first = received.setdefault(record.position, record.value)
        assert exact(first, record.value), f"{record.position} arrived as {first!r} and {record.value!r}"
    return received
