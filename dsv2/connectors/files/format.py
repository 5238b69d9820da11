"""The interface of a file format of ``FilesSource``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic

from dsv2.base.type_variables import T_co
from dsv2.connectors.files.directory import SourceFile
from dsv2.sources import SplitBatch


class FileFormat(ABC, Generic[T_co]):
    """A format of files. A position starts at 0 and counts bytes, or a similar measure of the format.

    Files must not change once they are in the directory. Write them elsewhere and rename them into it.
    """

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
