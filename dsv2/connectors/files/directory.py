"""The directory of a file source, on the local disk or on another file system, which Arrow reads.

Sources read in Python processes, in which Hadoop's file systems do not exist.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOENT
from fnmatch import fnmatchcase
from functools import lru_cache
from io import BufferedReader
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from dsv2.base.folders import LocalFolder, ReadableFolder
from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs


_URI = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://([^/]*)(/.*)?", re.DOTALL)
_AS_ARROW = {"s3a": "s3", "s3n": "s3"}  # Hadoop's names of S3
_BUFFER = 1 << 20


class SourceFile(ABC):
    """A file of a source. ``str(file)`` is its path.

    Attributes:
        path: The path, for errors.
        may_be_read_ahead: Whether threads of Arrow may read it. They must not if that calls Python: a thread that still
            refers to an object of Python when Python ends aborts the process.
    """

    may_be_read_ahead = False

    def __init__(self, path: str) -> None:
        self.path = path

    def __str__(self) -> str:
        return self.path

    @abstractmethod
    def size(self) -> int:
        """Return the size in bytes. Raises ``FileNotFoundError``."""

    @abstractmethod
    def open(self) -> BinaryIO:
        """Open the file to read and to seek. Raises ``FileNotFoundError``."""

    @abstractmethod
    def open_in_arrow(self) -> pa.NativeFile:
        """Open the file for Arrow's own readers. Raises ``FileNotFoundError``."""


class Directory(ReadableFolder):
    """A directory from which files are read. ``path`` is for errors."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the directory exists."""

    @abstractmethod
    def names(self, pattern: str) -> list[str]:
        """Return the names of the files that match a glob pattern, relative to the directory, with ``/``."""

    @abstractmethod
    def file(self, name: str) -> SourceFile:
        """Return a file, which need not exist."""


class FileLocation:
    """The directory of a source or reader. Can be pickled, and opens nothing before it is used.

    Args:
        path: A local path, or a URI.
        filesystem: Reads ``path``, which is then a path within this file system. None: derived from ``path``.
        user: The class or function that reads, for errors.

    Raises:
        ConfigurationError: ``path`` is not on the local disk, and pyarrow is missing or does not support its scheme.
    """

    def __init__(self, path: str | PathLike[str], filesystem: pafs.FileSystem | None, user: str) -> None:
        self.path = fspath(path)
        self.filesystem = filesystem
        uri = _URI.fullmatch(self.path)
        if filesystem is None and (uri is None or uri[1] == "file"):
            return
        require_client_library("pyarrow", "files", f"{user} with a directory that is not on the local disk")
        if filesystem is None and uri is not None:
            self._check_scheme(uri[1], user)

    def _check_scheme(self, scheme: str, user: str) -> None:
        known = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
        if scheme not in known and not scheme.startswith("fsspec+"):
            raise ConfigurationError(
                f"{user} cannot read {self.path}: Arrow has no file system for {scheme!r}. It has {', '.join(known)}. "
                f"For another one pass filesystem=..., such as pyarrow.fs.PyFileSystem(FSSpecHandler(...))."
            )

    def open(self) -> Directory:
        """Return the directory. Raises Arrow's error if its file system cannot be used."""
        if self.filesystem is not None:
            return _ArrowDirectory(self.path, self.filesystem, self.path.rstrip("/"))
        uri = _URI.fullmatch(self.path)
        if uri is None:
            return _LocalDirectory(self.path)
        scheme, authority, inner = uri[1], uri[2], uri[3] or "/"
        if scheme == "file":
            return _LocalDirectory(inner)
        filesystem, root = _file_system(f"{_AS_ARROW.get(scheme, scheme)}://{authority}/")
        return _ArrowDirectory(self.path, filesystem, f"{root.rstrip('/')}{inner}".rstrip("/"))


@lru_cache
def _file_system(root: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a URI, and the path of its root. A process connects once to each."""
    import pyarrow.fs as pafs

    try:
        filesystem, path = pafs.FileSystem.from_uri(root)
    except OSError as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"Arrow cannot open the file system {root}: {reason}. It needs credentials, or the native client of the "
            f"file system (libhdfs for HDFS), on the driver and on all workers; or pass filesystem=... See "
            f"docs/cluster.md."
        ) from error
    return filesystem, path


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Name the file in Arrow's error, as Python's has it."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(ENOENT, "No such file", path) from error


class LocalFile(SourceFile):
    """A file on the local disk, for tests of a format."""

    def size(self) -> int:
        return Path(self.path).stat().st_size

    def open(self) -> BinaryIO:
        return Path(self.path).open("rb")

    def open_in_arrow(self) -> pa.NativeFile:
        import pyarrow as pa

        with _named(self.path):
            return pa.OSFile(self.path)


class _LocalDirectory(LocalFolder, Directory):
    def exists(self) -> bool:
        return Path(self.path).is_dir()

    def names(self, pattern: str) -> list[str]:
        directory = Path(self.path)
        return [file.relative_to(directory).as_posix() for file in directory.glob(pattern) if file.is_file()]

    def file(self, name: str) -> SourceFile:
        return LocalFile(str(Path(self.path, name)))


class _ArrowFile(SourceFile):
    def __init__(self, path: str, filesystem: pafs.FileSystem, inner: str) -> None:
        import pyarrow.fs as pafs

        super().__init__(path)
        self._filesystem = filesystem
        self._inner = inner
        self.may_be_read_ahead = not isinstance(filesystem, pafs.PyFileSystem)

    def size(self) -> int:
        import pyarrow.fs as pafs

        found = self._filesystem.get_file_info(self._inner)
        if found.type is not pafs.FileType.File:
            raise FileNotFoundError(ENOENT, "No such file", self.path)
        return int(found.size)

    def open(self) -> BinaryIO:
        return cast(BinaryIO, BufferedReader(self.open_in_arrow(), _BUFFER))

    def open_in_arrow(self) -> pa.NativeFile:
        with _named(self.path):
            return self._filesystem.open_input_file(self._inner)


class _ArrowDirectory(Directory):
    """``inner``: The path within ``filesystem``."""

    def __init__(self, path: str, filesystem: pafs.FileSystem, inner: str) -> None:
        super().__init__(path.rstrip("/"))
        self._filesystem = filesystem
        self._inner = inner

    def exists(self) -> bool:
        import pyarrow.fs as pafs

        return bool(self._filesystem.get_file_info(self._inner).type is pafs.FileType.Directory)

    def names(self, pattern: str) -> list[str]:
        parts = pattern.split("/")
        files = _files(self._filesystem, self._inner, recursive=len(parts) > 1 or "**" in parts)
        return [name for name in files if _matches(name.split("/"), parts)]

    def file(self, name: str) -> SourceFile:
        return _ArrowFile(f"{self.path}/{name}", self._filesystem, f"{self._inner}/{name}")

    def sizes(self, name: str = "") -> dict[str, int]:
        import pyarrow.fs as pafs

        selector = pafs.FileSelector(self._place(name), allow_not_found=True)
        return {entry.base_name: int(entry.size or 0) for entry in self._filesystem.get_file_info(selector)}

    def read(self, name: str) -> bytes | None:
        try:
            with self._filesystem.open_input_file(self._place(name)) as opened:
                return bytes(opened.readall())
        except FileNotFoundError:
            return None

    def tree(self, name: str) -> dict[str, int]:
        return _files(self._filesystem, self._place(name), recursive=True)

    def _place(self, name: str) -> str:
        return f"{self._inner}/{name}" if name else self._inner


def _files(filesystem: pafs.FileSystem, inner: str, *, recursive: bool) -> dict[str, int]:
    """Return the files below a path, by their names relative to it, with sizes."""
    import pyarrow.fs as pafs

    found = filesystem.get_file_info(pafs.FileSelector(inner, allow_not_found=True, recursive=recursive))
    files = (entry for entry in found if entry.type is pafs.FileType.File)
    return {entry.path.lstrip("/").removeprefix(f"{inner.lstrip('/')}/"): int(entry.size) for entry in files}


def _matches(name: list[str], pattern: list[str]) -> bool:
    """Return whether a path matches a pattern, both in parts, as in ``Path.glob``: ``**`` is any number of folders."""
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_matches(name[skipped:], pattern[1:]) for skipped in range(len(name)))
    return bool(name) and fnmatchcase(name[0], pattern[0]) and _matches(name[1:], pattern[1:])
