"""The driver's side of ``FilesSource``: finds files, assigns them, and plans the range of each micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dsv2.connectors.files.directory import Directory, SourceFile
from dsv2.connectors.files.format import FileFormat
from dsv2.errors import JobError
from dsv2.sources import Portion, SplitDiscovery


@dataclass(frozen=True)
class FileSplit:
    """A file and the position up to which it has been read.

    Attributes:
        name: The path of the file, relative to the directory.
        position: The position up to which it has been read, in the format's unit.
        end: The position at the end of the file; None until reading begins.
    """

    name: str
    position: int = 0
    end: int | None = None

    @property
    def split_id(self) -> str:
        """The name of the file."""
        return self.name


class FilesDiscovery(SplitDiscovery[FileSplit]):
    """Assigns files gradually: the files being read together hold about as much as fits into a micro-batch.

    ``by_files``: the limit of a micro-batch counts files instead of bytes.
    """

    def __init__(self, directory: Directory, file_format: FileFormat[Any], pattern: str, *, by_files: bool) -> None:
        self._directory = directory
        self._format = file_format
        # At the end, ** means folders before Python 3.13, and since then also their files. Here it means the files.
        self._pattern = f"{pattern}/*" if pattern.rpartition("/")[2] == "**" else pattern
        self._by_files = by_files
        self._open: dict[str, int] = {}  # the unread size of each file that is being read

    def discover(self) -> list[FileSplit]:
        if not self._directory.exists():
            raise JobError(
                f"The directory {self._directory.path} of a FilesSource does not exist. Create it, or correct the path."
            )
        found = self._directory.names(self._pattern)
        names = [name for name in found if not any(part.startswith((".", "_")) for part in name.split("/"))]
        return [FileSplit(name) for name in sorted(names)]

    def ready(self, waiting: Sequence[FileSplit], limit: int | None, /) -> list[FileSplit]:
        """Return as many of ``waiting`` as fit into a micro-batch."""
        assert limit is not None
        chosen: list[FileSplit] = []
        left = limit - sum(self._open.values())
        for split in waiting:
            if left <= 0:
                break
            measured = self._measured(split)
            size = self._open[split.name] = self._left(measured)
            left -= size
            chosen.append(measured)
        return chosen

    def advance(self, split: FileSplit, limit: int | None, /) -> Portion[FileSplit] | None:
        split = self._measured(split)
        assert split.end is not None
        stop = split.end
        if limit is not None and not self._by_files:
            stop = self._format.stop(self._file(split), split.position, split.end, limit)
        reached, last = replace(split, position=stop), stop == split.end
        size = 1 if self._by_files else stop - split.position
        if last:
            self._open.pop(split.name, None)
        else:
            self._open[split.name] = self._left(reached)
        return Portion(reached, size, last)

    def _file(self, split: FileSplit) -> SourceFile:
        return self._directory.file(split.name)

    def _measured(self, split: FileSplit) -> FileSplit:
        if split.end is not None:
            return split
        try:
            return replace(split, end=self._format.end(self._file(split)))
        except FileNotFoundError as error:
            raise JobError(
                f"{self._file(split)} was removed before it was read. Put it back, or restart the job from its "
                f"checkpoint: a source that looks for new files then continues without this one."
            ) from error

    def _left(self, split: FileSplit) -> int:
        assert split.end is not None
        return 1 if self._by_files else split.end - split.position
