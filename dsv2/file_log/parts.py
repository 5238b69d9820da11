"""Finds the records of a range of micro-batches in the files of a sink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dsv2.base.folders import ReadableFolder
from dsv2.file_log.entry import DataFile
from dsv2.file_log.merging import in_order, read_ends
from dsv2.file_log.state import LogState


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive records of a file.

    Attributes:
        file: The file.
        start: Where they begin, in rows for Parquet and in bytes for other formats.
        stop: Where they end. None: at the end of the file.
    """

    file: DataFile
    start: int = 0
    stop: int | None = None


def parts_between(folder: ReadableFolder, state: LogState, after: int, last: int) -> Iterator[Part]:
    """Yield the parts with the records of the micro-batches from ``after + 1`` to ``last``.

    Their order does not change when files are merged: by partition, then by micro-batch.

    Raises:
        CorruptDataError: The information about a merged file is missing or damaged.
    """
    for file in in_order(state.files.values()):
        if file.last <= after or file.first > last:
            continue
        if file.first > after and file.last <= last:
            yield Part(file)
            continue
        ends = read_ends(folder, file)
        start = max((end for batch, end in ends.items() if batch <= after), default=0)
        stop = max((end for batch, end in ends.items() if batch <= last), default=0)
        if stop > start:
            yield Part(file, start, stop)
