"""The contents of the log of a file sink, and of the files beside the log."""

from __future__ import annotations

from msgspec import Struct

from dsv2.file_log.names import is_hidden


class DataFile(Struct, frozen=True, array_like=True):
    """A file of the output. It never changes. In JSON it is a list.

    Attributes:
        path: The path, relative to the folder of the sink.
        size: Bytes.
        first: The first micro-batch that has records in the file.
        last: The last one. The records are in the order of micro-batches.
        schema: The index of the schema in the description of the sink.
    """

    path: str
    size: int
    first: int
    last: int
    schema: int

    @property
    def is_hidden(self) -> bool:
        """True if readers that list the folder skip the file, because it is to be merged with others."""
        return is_hidden(self.path)


class Entry(Struct, frozen=True):
    """A change of the output, which readers see as a whole.

    Attributes:
        time_ms: When it was written.
        run: The run or the command that wrote it.
        batch: The last micro-batch of the output, whose records are in ``added``. None: ``added`` has the records of
            ``removed``.
        added: New files.
        removed: The paths of files that are no longer part of the output.
        opens: Whether the run begins to write.
        closes: Whether the run has ended normally.
    """

    time_ms: int
    run: str
    batch: int | None
    added: tuple[DataFile, ...]
    removed: tuple[str, ...]
    opens: bool
    closes: bool


class Snapshot(Struct, frozen=True):
    """The result of all entries up to ``version``. Attributes: ``format``, and as for ``LogState``."""

    format: int
    version: int
    last_batch: int
    files: list[DataFile]
    replaced: dict[str, int]
    run: str
    closed: bool


class Pending(Struct, frozen=True):
    """A micro-batch that is prepared. ``files``: its files and their sizes, relative to ``staging``."""

    batch: int
    staging: str
    files: tuple[tuple[str, int], ...]
    schema: int


class Replacement(Struct, frozen=True):
    """A merge. ``moves``: where its files are, and their places."""

    staging: str
    moves: tuple[tuple[str, str], ...]
    added: tuple[DataFile, ...]
    removed: tuple[str, ...]
