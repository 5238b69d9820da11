"""The entries of the log of a file sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dsv2.file_log.names import is_hidden

__all__ = ("DataFile", "Entry", "as_data_file", "as_values")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the output. It never changes.

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
        """Whether readers that list the folder skip the file, because it is to be merged with others."""
        return is_hidden(self.path)


@dataclass(frozen=True, slots=True)
class Entry:
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
    batch: int | None = None
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    opens: bool = False
    closes: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the entry as values of JSON."""
        return {
            "time_ms": self.time_ms,
            "run": self.run,
            "batch": self.batch,
            "added": [as_values(file) for file in self.added],
            "removed": list(self.removed),
            "opens": self.opens,
            "closes": self.closes,
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Entry:
        """Return the entry for the result of ``as_json``. Raises ``LookupError``, ``TypeError`` or ``ValueError``."""
        return Entry(
            int(values["time_ms"]),
            str(values["run"]),
            None if values["batch"] is None else int(values["batch"]),
            tuple(map(as_data_file, values["added"])),
            tuple(map(str, values["removed"])),
            bool(values["opens"]),
            bool(values["closes"]),
        )


def as_values(file: DataFile) -> list[Any]:
    """Return a file as a list for JSON: path, size, first, last, schema."""
    return [file.path, file.size, file.first, file.last, file.schema]


def as_data_file(values: Any) -> DataFile:
    """Return the file for the result of ``as_values``."""
    path, size, first, last, schema = values
    return DataFile(str(path), int(size), int(first), int(last), int(schema))
