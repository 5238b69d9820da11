"""Folders of checkpoints and sinks on any file system that Hadoop supports. Names are literal, never patterns.

Uses internals of PySpark, because its public API has no access to files.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

__all__ = ("Folder", "LocalFolder", "driver_folder", "jvm_process", "open_folder")


class Folder(ABC):
    """The files below ``path``, by relative names such as ``"offsets/3"``. The folder need not exist."""

    def __init__(self, path: str) -> None:
        self.path = path

    @abstractmethod
    def sizes(self, name: str = "") -> dict[str, int]:
        """Return the names in the folder ``name`` with sizes in bytes (0 for folders); empty if it does not exist."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file. Readers see the new content, the old content or no file, never a part."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""

    def numbers(self, name: str, prefix: str = "", suffix: str = "") -> list[int]:
        """Return the sorted numbers of the entries ``<prefix><number><suffix>`` in the folder ``name``."""
        inner = (
            entry.removeprefix(prefix).removesuffix(suffix)
            for entry in self.sizes(name)
            if entry.startswith(prefix) and entry.endswith(suffix)
        )
        return sorted(int(number) for number in inner if number.isascii() and number.isdigit())

    def place(self, name: str) -> str:
        """Return the path of ``name``, for errors."""
        return f"{self.path}/{name}"

    def uri(self, name: str) -> str:
        """Return the path of ``name`` as Spark records it: with its scheme, and not escaped."""
        return self.place(name)


class LocalFolder(Folder):
    """A folder on a local disk. Uses Python, because Hadoop starts processes to set the permissions of each file."""

    def sizes(self, name: str = "") -> dict[str, int]:
        try:
            with os.scandir(Path(self.path, name)) as entries:
                return {entry.name: entry.stat().st_size if entry.is_file() else 0 for entry in entries}
        except FileNotFoundError:
            return {}

    def read(self, name: str) -> bytes | None:
        try:
            return Path(self.path, name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        file = Path(self.path, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.{os.getpid()}.new")
        new.write_bytes(data)
        os.replace(new, file)

    def delete(self, name: str) -> None:
        Path(self.path, name).unlink(missing_ok=True)

    def uri(self, name: str) -> str:
        return f"file:{self.place(name)}"


class _HadoopFolder(Folder):
    """A folder on any other file system."""

    def __init__(self, path: str, jvm: Any, files: Any) -> None:
        super().__init__(path)
        self._path = jvm.org.apache.hadoop.fs.Path
        self._files = files

    def sizes(self, name: str = "") -> dict[str, int]:
        folder = self._path(self.place(name)) if name else self._path(self.path)
        if not self._files.exists(folder):
            return {}
        return {entry.getPath().getName(): entry.getLen() for entry in self._files.listStatus(folder)}

    def read(self, name: str) -> bytes | None:
        file = self._path(self.place(name))
        if not self._files.exists(file):
            return None
        stream = self._files.open(file)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        folder, _, file = name.rpartition("/")
        new, final = self._path(self.place(f"{folder}/_{file}.new")), self._path(self.place(name))
        stream = self._files.create(new, True)
        try:
            stream.write(data)
        finally:
            stream.close()
        self._files.delete(final, False)
        if not self._files.rename(new, final):
            raise OSError(f"{new} cannot be renamed to {final}.")

    def delete(self, name: str) -> None:
        self._files.delete(self._path(self.place(name)), False)


def open_folder(spark: SparkSession, path: str) -> Folder:
    """Open the folder at ``path``, resolved as by Spark. Raises Hadoop's error for a path that it cannot use."""
    jvm: Any = spark.sparkContext._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    folder = jvm.org.apache.hadoop.fs.Path(path)
    files = folder.getFileSystem(configuration)
    qualified = files.makeQualified(folder)
    if qualified.toUri().getScheme() == "file":
        return LocalFolder(str(qualified.toUri().getPath()))
    return _HadoopFolder(str(qualified.toString()), jvm, files)


def driver_folder(spark: SparkSession) -> str:
    """Return a folder of the application on the driver's host. The JVM deletes it on exit, even if Python is killed."""
    return str(spark.sparkContext._temp_dir)


def jvm_process(spark: SparkSession) -> int:
    """Return the process id of Spark's driver."""
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())
