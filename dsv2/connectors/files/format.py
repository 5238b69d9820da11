"""What a ``FilesSource`` has to know of a kind of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

__all__ = ("FileFormat", "UndecodableError", "decoded")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class UndecodableError(ValueError):
    """A record of a file on which ``decode`` raised."""


class FileFormat(ABC, Generic[T_co]):
    """How to read files of one kind. Positions are numbers of bytes, or what the format takes for them; 0 at first.

    The files themselves do not change: what is written to a directory appears there whole, by a rename.
    """

    def end(self, file: Path) -> int:
        """The position at the end of ``file``. Called on the driver."""
        return file.stat().st_size

    def stop(self, file: Path, position: int, end: int, limit: int) -> int:
        """Where to stop, if about ``limit`` is wanted from ``position`` on. By default files are read as a whole."""
        return end

    @abstractmethod
    def read(self, file: Path, start: int, stop: int) -> Iterator[list[T_co]]:
        """The records between two positions that ``stop`` has given, some thousand at a time. Called in tasks."""


def decoded(decode: Callable[[Any], T], values: Sequence[Any], place: Callable[[int], str]) -> list[T]:
    """``decode`` of each value. Raises ``UndecodableError`` from what it raises; ``place(index)`` says where."""
    records: list[T] = []
    append = records.append
    try:
        for value in values:
            append(decode(value))
    except Exception as error:
        raise UndecodableError(f"{place(len(records))}: {type(error).__qualname__}: {error}") from error
    return records
