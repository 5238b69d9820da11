"""The interface of a file format of ``FilesSource``, and parts of files that cannot be read.

The error policy of the source applies to these, as to values for ``decode``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn

from dsv2.base.record_position import Offset
from dsv2.base.type_variables import T, T_co
from dsv2.connectors.files.directory import SourceFile
from dsv2.sources import SplitBatch


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Is among the values of a file in the place of a value that cannot be read.

    Attributes:
        raw: What a dead letter has as its record: the line, or the path of the file.
        reason: What is wrong.
    """

    raw: object
    reason: str

    def fail(self) -> NoReturn:
        """Raise the error."""
        raise ValueError(self.reason)


def split_batch(values: Sequence[Any], decode: Callable[[Any], T] | None, offsets: Sequence[Offset]) -> SplitBatch[T]:
    """Return a batch of ``values``. Decoding fails for those that are ``Unreadable``."""
    if Unreadable not in set(map(type, values)):
        return SplitBatch(values, decode, offsets=lambda: offsets)

    def decoded(value: Any) -> Any:
        if type(value) is Unreadable:
            value.fail()
        return value if decode is None else decode(value)

    def raw(value: Any) -> object:
        return value.raw if type(value) is Unreadable else value

    return SplitBatch(values, decoded, offsets=lambda: offsets, raw=raw)


def unreadable_again(raw: object) -> SplitBatch[Any]:
    """Return a batch for the dead letter of something ``Unreadable``: no program can decode it."""
    return split_batch([Unreadable(raw, "It cannot be read, as before. Write it correctly into a new file")], None, [0])


class FileFormat(ABC, Generic[T_co]):
    """A format of files. A position starts at 0 and counts bytes, or a similar measure of the format.

    Files must not change once they are in the directory. Write them elsewhere and rename them into it.
    """

    record_type: type | None = None
    """The class of the records. None: not known."""

    @property
    def why_rows(self) -> str | None:
        """The reason why it reads rows, as the rest of a sentence. Empty: it reads columns. None: not known."""
        return None

    def end(self, file: SourceFile) -> int:
        """Return the position at the end of ``file``. Called on the driver."""
        return file.size()

    def stop(self, file: SourceFile, position: int, end: int, limit: int) -> int:
        """Choose where a micro-batch stops reading. Called on the driver.

        Args:
            file: The file.
            position: Where the micro-batch starts.
            end: The position at the end of the file.
            limit: How far to read from ``position``, approximately.

        Returns:
            A position after ``position`` and up to ``end``. The default is ``end``: the file is not divided.
        """
        return end

    def decode_again(self, file: SourceFile, value: Any) -> SplitBatch[T_co]:
        """Return a batch with one value, that of a dead letter, as ``read`` yields it. Called in tasks.

        By default, dead letters cannot be processed again.

        Args:
            file: The file with the value, which may have been moved away.
            value: The record of the dead letter.
        """
        raise NotImplementedError

    @abstractmethod
    def read(self, file: SourceFile, start: int, stop: int) -> Iterator[SplitBatch[T_co]]:
        """Yield the records between two positions that ``stop`` returned, some thousands at a time. Called in tasks."""
