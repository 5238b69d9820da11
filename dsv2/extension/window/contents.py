"""What a window holds: the records, or what they have been folded into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add
from typing import Any, TypeAlias

from dsv2.state import AggregateFunction

__all__ = ("NOTHING", "Contents", "Put", "accumulators", "pairs_of_lists", "record_lists", "reduced_records")

Put: TypeAlias = Callable[[Any, Any], Any]
"""From the content so far and a record to the new content, which may be the same object."""

NOTHING: Any = object()
"""Content that the first record replaces. A window is made for a record, so it is there for a moment only."""


@dataclass(frozen=True, slots=True)
class Contents:
    """One kind of content.

    ``empty`` makes the content of a new window. ``puts``: for each input how a record is put into it. ``merge`` makes
    one content of two, which are given up. ``layout`` says what it is; ``callback``, whose failure that of ``puts`` is.
    """

    layout: str
    empty: Callable[[], Any]
    puts: tuple[Put, ...]
    merge: Callable[[Any, Any], Any]
    callback: str = "put_record"

    def put(self, content: Any, record: Any, side: int) -> Any:
        """The new content of a window that gets a record of the input ``side``."""
        return record if content is NOTHING else self.puts[side](content, record)


def record_lists() -> Contents:
    """The records of one input."""
    return Contents("records", list, (_append,), add)


def pairs_of_lists() -> Contents:
    """The records of two inputs, each in a list of its own."""
    return Contents(
        "records of two inputs",
        lambda: ([], []),
        (_append_first, _append_second),
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
    )


def accumulators(function: AggregateFunction[Any, Any, Any]) -> Contents:
    """Accumulators of ``function``."""
    add_to = function.add

    def put(content: Any, record: Any) -> Any:
        return add_to(record, content)

    return Contents("accumulators", function.create_accumulator, (put,), function.merge, "add")


def reduced_records(reduce: Callable[[Any, Any], Any]) -> Contents:
    """What ``reduce(reduce(first, second), third)`` and so on gives."""

    return Contents("reduced records", lambda: NOTHING, (reduce,), reduce, "reduce")


def _append(content: Any, record: Any) -> Any:
    content.append(record)
    return content


def _append_first(content: Any, record: Any) -> Any:
    content[0].append(record)
    return content


def _append_second(content: Any, record: Any) -> Any:
    content[1].append(record)
    return content
