"""Folders of checkpoints, savepoints and sinks on any file system that Hadoop supports.

Uses internals of PySpark, because its public API has no access to files.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from dsv2.folders import Folder, LocalFolder

__all__ = ("driver_folder", "jvm_process", "open_folder")


class _HadoopFolder(Folder):
    """A folder on any other file system."""

    def __init__(self, path: str, jvm: Any, files: Any) -> None:
        super().__init__(path)
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._files = files

    def sizes(self, name: str = "") -> dict[str, int]:
        return {entry.getPath().getName(): entry.getLen() for entry in self._entries(name)}

    def links(self, name: str = "") -> list[str]:
        return sorted(entry.getPath().getName() for entry in self._entries(name) if entry.isSymlink())

    def _entries(self, name: str) -> Any:
        folder = self._path(self.place(name)) if name else self._path(self.path)
        return self._files.listStatus(folder) if self._files.exists(folder) else []

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

    def create(self, name: str, data: bytes) -> bool:
        folder, _, file = name.rpartition("/")
        # Each writer has a file of its own. Renaming does not replace a file.
        new, final = self._path(self.place(f"{folder}/_{file}.{uuid4()}")), self._path(self.place(name))
        stream = self._files.create(new, True)
        try:
            stream.write(data)
        finally:
            stream.close()
        try:
            return not self._files.exists(final) and bool(self._files.rename(new, final))
        finally:
            self._files.delete(new, False)

    def move(self, name: str, new: str) -> bool:
        source, target = self._path(self.place(name)), self._path(self.place(new))
        if not self._files.exists(source):
            return False
        self._files.mkdirs(target.getParent())
        if not self._files.rename(source, target):
            raise OSError(f"{source} cannot be renamed to {target}.")
        return True

    def tree(self, name: str) -> dict[str, int]:
        root = self._path(self.place(name))
        if not self._files.exists(root):
            return {}
        base = self._files.makeQualified(root).toString()
        found, files = {}, self._files.listFiles(root, True)
        while files.hasNext():
            entry = files.next()
            found[str(entry.getPath().toString()).removeprefix(f"{base}/")] = int(entry.getLen())
        return found

    def delete(self, name: str) -> None:
        self._files.delete(self._path(self.place(name)), False)

    def remove(self, name: str) -> None:
        self._files.delete(self._path(self.place(name)), True)

    def subfolder(self, name: str) -> Folder:
        return _HadoopFolder(self.place(name), self._jvm, self._files)


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
