"""The contents of windows: records, accumulators or reduced records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add
from typing import Any, Final, TypeAlias

from dsv2.state import AggregateFunction

Put: TypeAlias = Callable[[Any, Any], Any]
"""Puts a record into a content. Returns the new content, which may be the same object."""

TIMED_RECORDS: Final = "records with timestamps"

NOTHING: Any = object()
"""The content of a new window that its first record replaces."""


@dataclass(frozen=True, slots=True)
class Contents:
    """One kind of content.

    Attributes:
        layout: A description, part of the checkpoint.
        empty: Creates the content of a new window.
        puts: For each input the function that puts a record into a content.
        merge: Merges two contents to one. Neither may be used afterwards.
        callback: The callback named in the error if ``puts`` fails.
    """

    layout: str
    empty: Callable[[], Any]
    puts: tuple[Put, ...]
    merge: Callable[[Any, Any], Any]
    callback: str = "put_record"

    def put(self, content: Any, record: Any, side: int) -> Any:
        """The content with a record of the input ``side`` added."""
        return record if content is NOTHING else self.puts[side](content, record)


def record_lists() -> Contents:
    """Content: the records of one input."""
    return Contents("records", list, (_append,), add)


def timed_lists(timestamp: Callable[[], int | None]) -> Contents:
    """Content: the records of one input with their timestamps. ``timestamp`` returns that of the current record."""

    def put(content: Any, record: Any) -> Any:
        content.append((record, timestamp()))
        return content

    return Contents(TIMED_RECORDS, list, (put,), add)


def pairs_of_lists() -> Contents:
    """Content: the records of two inputs, in separate lists."""
    return Contents(
        "records of two inputs",
        lambda: ([], []),
        (_append_first, _append_second),
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
    )


def accumulators(function: AggregateFunction[Any, Any, Any]) -> Contents:
    """Content: an accumulator of ``function``."""
    add_to = function.add

    def put(content: Any, record: Any) -> Any:
        return add_to(record, content)

    return Contents("accumulators", function.create_accumulator, (put,), function.merge, "add")


def reduced_records(reduce: Callable[[Any, Any], Any]) -> Contents:
    """Content: the records reduced to one, ``reduce(reduce(first, second), third)`` and so on."""

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
