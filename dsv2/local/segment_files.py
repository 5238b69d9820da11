"""The files of a log: numbered segments. Data are appended to the last one."""

from __future__ import annotations

import os
from pathlib import Path

from dsv2.base.folders import LocalFolder
from dsv2.errors import JobError

_SUFFIX = ".log"


class SegmentFiles:
    """The segments in ``folder``, which need not exist. ``find`` is called first.

    Args:
        folder: The folder.
        durable: Whether data are forced to the disk.
    """

    def __init__(self, folder: str, *, durable: bool) -> None:
        self._folder = LocalFolder(folder, durable=durable)
        self._durable = durable
        self._files: dict[int, int] = {}  # file descriptors
        self.sizes: dict[int, int] = {}
        """The size of each segment in bytes, by its number, ascending."""

    def find(self) -> None:
        """Find the segments."""
        self.sizes = self._folder.numbered("", _SUFFIX)

    def new_reader(self) -> SegmentFiles:
        """Return the same segments for another thread. It reads them even after they have been deleted.

        Raises:
            FileNotFoundError: Another process has deleted one since ``find``.
        """
        reader = SegmentFiles(self._folder.path, durable=False)
        for segment in [*self.sizes]:
            reader._file(segment)
        return reader

    def path(self, segment: int) -> Path:
        """Return the path of a segment."""
        return Path(self._folder.place(f"{segment:08}{_SUFFIX}"))

    @property
    def last(self) -> int:
        """The last segment; -1 if there is none."""
        return next(reversed(self.sizes), -1)

    def begin(self, data: bytes) -> None:
        """Begin a new segment with ``data``. The file gets its name when it has its content, on the disk if durable."""
        number = self.last + 1
        try:
            self._folder.write(self.path(number).name, data)
        except OSError as error:
            raise self._not_written(error) from error
        self.sizes[number] = len(data)

    def append(self, data: bytes) -> int:
        """Append to the last segment, and return where ``data`` begins. Raises ``JobError``, and appends nothing."""
        last = self.last
        offset = self.sizes[last]
        try:
            file, written = self._file(last), 0
            while written < len(data):
                written += os.pwrite(file, memoryview(data)[written:], offset + written)
        except OSError as error:
            self.truncate(last, offset)
            raise self._not_written(error) from error
        self.sizes[last] = offset + len(data)
        return offset

    def sync(self) -> None:
        """Force the last segment to the disk if the log is durable."""
        if self._durable:
            try:
                os.fdatasync(self._file(self.last))
            except OSError as error:
                raise self._not_written(error) from error

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """Return ``size`` bytes of a segment, or fewer at its end."""
        file = self._file(segment)
        data = os.pread(file, size, offset)
        while len(data) < size and (more := os.pread(file, size - len(data), offset + len(data))):
            data += more  # one call returns 2 GiB at most
        return data

    def truncate(self, segment: int, size: int) -> None:
        """Remove the end of a segment."""
        os.ftruncate(self._file(segment), size)
        self.sizes[segment] = size

    def delete(self, segment: int) -> None:
        """Delete a segment."""
        self._close(segment)
        self.path(segment).unlink(missing_ok=True)
        del self.sizes[segment]

    def close(self) -> None:
        """Close the files."""
        for segment in [*self._files]:
            self._close(segment)

    def _file(self, segment: int) -> int:
        file = self._files.get(segment)
        if file is None:
            path = self.path(segment)
            flags = os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY
            file = self._files[segment] = os.open(path, flags | os.O_CLOEXEC)
        return file

    def _close(self, segment: int) -> None:
        if (file := self._files.pop(segment, None)) is not None:
            os.close(file)

    def _not_written(self, error: OSError) -> JobError:
        return JobError(f"The checkpoint in {self._folder.path} cannot be written: {error.strerror}.")
