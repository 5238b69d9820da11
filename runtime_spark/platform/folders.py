"""Folders of checkpoints, savepoints and sinks on any file system that Hadoop supports.

Uses internals of PySpark, because its public API has no access to files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from dsv2.base.folders import Folder, LocalFolder
from runtime_spark.platform.connect import is_connect, shared_folder
from runtime_spark.platform.java_classes import java_class

T = TypeVar("T")


_ABORTABLE = "fs.capability.outputstream.abortable"  # a file appears when its stream is closed: an object store
_CONDITIONAL = "fs.option.create.conditional.overwrite"


class _Hadoop:
    """A file system of Hadoop, as Python sees it."""

    def __init__(self, jvm: Any, path: str, configuration: Any) -> None:
        self.new_path = java_class(jvm, "org.apache.hadoop.fs.Path")
        folder = self.new_path(path)
        self.files = folder.getFileSystem(configuration)
        self.folder = self.files.makeQualified(folder)
        self._jvm = jvm
        self._configuration = configuration

    def has(self, capability: str) -> bool:
        """Return whether it has a capability."""
        return bool(self.files.hasPathCapability(self.folder, capability))

    def write(self, path: Any, data: bytes) -> None:
        """Create or overwrite a file."""
        self.fill(self.files.create(path, True), data)

    def fill(self, stream: Any, data: bytes) -> None:
        """Write ``data`` to a new file, and close it."""
        try:
            stream.write(data)
        finally:
            stream.close()

    def replace(self, path: Any, target: Any) -> None:
        """Rename a file; an existing ``target`` is replaced at once, if the file system can do this."""
        contexts = java_class(self._jvm, "org.apache.hadoop.fs.FileContext")
        try:
            context = contexts.getFileContext(self.folder.toUri(), self._configuration)
        except Py4JJavaError:  # there is none for this file system
            self.files.delete(target, False)
            if not self.files.rename(path, target):
                raise OSError(f"{path} cannot be renamed to {target}.") from None
            return
        kinds = java_class(self._jvm, "org.apache.hadoop.fs.Options$Rename")
        arrays = java_class(self._jvm, "java.lang.reflect.Array")
        options = arrays.newInstance(kinds.OVERWRITE.getDeclaringClass(), 1)
        options[0] = kinds.OVERWRITE
        context.rename(path, target, options)


class _HadoopFolder(Folder):
    """A folder on another file system. A file gets its content under another name, and is renamed then."""

    def __init__(self, path: str, hadoop: _Hadoop) -> None:
        super().__init__(path)
        self._hadoop = hadoop
        self._files = hadoop.files

    def sizes(self, name: str = "") -> dict[str, int]:
        return {entry.getPath().getName(): entry.getLen() for entry in self._entries(name)}

    def links(self, name: str = "") -> list[str]:
        return sorted(entry.getPath().getName() for entry in self._entries(name) if entry.isSymlink())

    def _entries(self, name: str) -> Any:
        folder = self._path(name) if name else self._hadoop.new_path(self.path)
        return _unless_missing(lambda: self._files.listStatus(folder), [])

    def _path(self, name: str) -> Any:
        return self._hadoop.new_path(self.place(name))

    def read(self, name: str) -> bytes | None:
        stream = _unless_missing(lambda: self._files.open(self._path(name)), None)
        if stream is None:
            return None
        try:
            return _unless_missing(lambda: bytes(stream.readAllBytes()), None)
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        folder, _, file = name.rpartition("/")
        new = self._path(f"{folder}/_{file}.new")
        self._hadoop.write(new, data)
        self._hadoop.replace(new, self._path(name))

    def create(self, name: str, data: bytes) -> bool:
        folder, _, file = name.rpartition("/")
        # Each writer has a file of its own. Renaming does not replace a file.
        new, final = self._path(f"{folder}/_{file}.{uuid4()}"), self._path(name)
        self._hadoop.write(new, data)
        try:
            return not self._files.exists(final) and bool(self._files.rename(new, final))
        finally:
            self._files.delete(new, False)

    def move(self, name: str, new: str) -> bool:
        source, target = self._path(name), self._path(new)
        if not self._files.exists(source):
            return False
        self._files.mkdirs(target.getParent())
        if not self._files.rename(source, target):
            raise OSError(f"{source} cannot be renamed to {target}.")
        return True

    def tree(self, name: str) -> dict[str, int]:
        root = self._path(name)
        files = _unless_missing(lambda: self._files.listFiles(root, True), None)
        if files is None:
            return {}
        base = self._files.makeQualified(root).toString()
        found = {}
        while files.hasNext():
            entry = files.next()
            found[str(entry.getPath().toString()).removeprefix(f"{base}/")] = int(entry.getLen())
        return found

    def delete(self, name: str) -> None:
        self._files.delete(self._path(name), False)

    def remove(self, name: str) -> None:
        self._files.delete(self._path(name), True)

    def subfolder(self, name: str) -> Folder:
        return type(self)(self.place(name), self._hadoop)


class _ObjectStoreFolder(_HadoopFolder):
    """A folder in an object store: a file appears with all of its content, and renaming would copy it."""

    def write(self, name: str, data: bytes) -> None:
        self._hadoop.write(self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        if self._files.exists(path):
            return False
        if not self._hadoop.has(_CONDITIONAL):  # then the lease alone keeps a second writer away
            self._hadoop.write(path, data)
            return True
        try:
            self._hadoop.fill(self._files.createFile(path).recursive().must(_CONDITIONAL, True).build(), data)
        except Py4JJavaError:
            found = self.read(name)
            if found is None:
                raise
            return found == data  # a request that was repeated finds its own file
        return True

    def move(self, name: str, new: str) -> bool:
        if name != new and self._files.exists(self._path(name)):
            self.delete(new)  # a copy whose original could not be deleted before
        return super().move(name, new)


def _unless_missing(call: Callable[[], T], otherwise: T) -> T:
    """Return the result of a call of Hadoop, or ``otherwise`` if there is no such file or folder."""
    try:
        return call()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "FileNotFoundException":
            raise
        return otherwise


def open_folder(spark: SparkSession, path: str) -> Folder:
    """Open the folder at ``path``, resolved as by Spark. Raises Hadoop's error for a path that it cannot use.

    Spark Connect has no access to files. There it must be a folder that this program and the server see.
    """
    if is_connect(spark):
        return shared_folder(spark, path)
    jvm: Any = spark.sparkContext._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    hadoop = _Hadoop(jvm, path, configuration)
    if hadoop.folder.toUri().getScheme() == "file":
        return LocalFolder(str(hadoop.folder.toUri().getPath()))
    kind = _ObjectStoreFolder if hadoop.has(_ABORTABLE) else _HadoopFolder
    return kind(str(hadoop.folder.toString()), hadoop)


def driver_folder(spark: SparkSession) -> str:
    """Return a folder of the application on the driver's host. The JVM deletes it on exit, even if Python is killed."""
    return str(spark.sparkContext._temp_dir)


def driver_processes(spark: SparkSession) -> list[int]:
    """Return the ids of the processes of this driver, Python first. A client of Spark Connect has one."""
    if is_connect(spark):
        return [os.getpid()]
    jvm: Any = spark.sparkContext._jvm
    return [os.getpid(), int(java_class(jvm, "java.lang.ProcessHandle").current().pid())]
