"""Folders of checkpoints, savepoints and sinks. Names are literal, never patterns."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
from abc import ABC, abstractmethod
from pathlib import Path

_PATTERN = re.compile(r"([\\*?\[\]{}^])")


class ReadableFolder(ABC):
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
    def tree(self, name: str) -> dict[str, int]:
        """Return the files below the folder ``name`` at any depth, by their names relative to it, with sizes."""

    def numbered(self, name: str, suffix: str = "") -> dict[int, int]:
        """Return the sizes of the entries ``<number><suffix>`` in the folder ``name``, in the order of the numbers."""
        found = {
            int(number): size
            for entry, size in self.sizes(name).items()
            if entry.endswith(suffix) and (number := entry.removesuffix(suffix)).isascii() and number.isdigit()
        }
        return dict(sorted(found.items()))

    def numbers(self, name: str, suffix: str = "") -> list[int]:
        """Return the numbers of these entries."""
        return list(self.numbered(name, suffix))

    def place(self, name: str) -> str:
        """Return the path of ``name``, for errors."""
        return f"{self.path}/{name}"


class Folder(ReadableFolder):
    """A folder that can also be written."""

    @abstractmethod
    def links(self, name: str = "") -> list[str]:
        """Return the names of the symbolic links in the folder ``name``."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file. Readers see the new content, the old content or no file, never a part."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Create a file, or return False if it exists. Of several writers one succeeds, and readers see all of it."""

    @abstractmethod
    def move(self, name: str, new: str) -> bool:
        """Rename a file, and create the folder of its new name. Return False if it does not exist."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete a file or a folder with all that is in it, if it exists."""

    @abstractmethod
    def subfolder(self, name: str) -> Folder:
        """Return the folder ``name``, which need not exist."""

    def uri(self, name: str) -> str:
        """Return the path of ``name`` as Spark records it: with its scheme, and not escaped."""
        return self.place(name)


class LocalFolder(Folder):
    """A folder on a local disk. Uses Python, because Hadoop starts processes to set the permissions of each file.

    Args:
        path: The path of the folder.
        durable: Whether files are forced to the disk when they are written, so that they survive a loss of power.
    """

    def __init__(self, path: str, *, durable: bool = False) -> None:
        super().__init__(path)
        self._durable = durable
        self._has_place = False  # the names of the folder and of those above it are on the disk

    def sizes(self, name: str = "") -> dict[str, int]:
        found = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(Path(self.path, name)) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another process may delete it
                    found[entry.name] = entry.stat().st_size if entry.is_file() else 0
        return found

    def links(self, name: str = "") -> list[str]:
        try:
            with os.scandir(Path(self.path, name)) as entries:
                return sorted(entry.name for entry in entries if entry.is_symlink())
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes | None:
        try:
            return Path(self.path, name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes) -> None:
        file = Path(self.path, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        new = self._written(file, data)
        os.replace(new, file)
        self._force_names(file)

    def create(self, name: str, data: bytes) -> bool:
        file = Path(self.path, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        new = self._written(file, data)
        try:
            os.link(new, file)
        except FileExistsError:
            return False
        except OSError:  # the file system has no links
            if file.exists():
                return False
            os.replace(new, file)
        finally:
            new.unlink(missing_ok=True)
        self._force_names(file)
        return True

    def move(self, name: str, new: str) -> bool:
        target = Path(self.path, new)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(Path(self.path, name), target)
        except FileNotFoundError:
            return False
        self._force_names(target)
        return True

    def delete(self, name: str) -> None:
        Path(self.path, name).unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        place = Path(self.path, name)
        while place.is_dir() and not place.is_symlink():
            with contextlib.suppress(FileNotFoundError):  # another process may delete it as well
                shutil.rmtree(place)
        place.unlink(missing_ok=True)

    def subfolder(self, name: str) -> LocalFolder:
        return LocalFolder(self.place(name), durable=self._durable)

    def tree(self, name: str) -> dict[str, int]:
        root = Path(self.path, name)
        found = {}
        for folder, _, files in os.walk(root):
            for file in (Path(folder, own) for own in files):
                with contextlib.suppress(FileNotFoundError):  # another process may delete it
                    found[file.relative_to(root).as_posix()] = file.stat().st_size
        return found

    def uri(self, name: str) -> str:
        return f"file:{self.place(name)}"

    def _written(self, file: Path, data: bytes) -> Path:
        """Write the content of a file before it gets its name, and return where it is."""
        new = _new_name(file)
        with open(new, "wb") as opened:
            opened.write(data)
            if self._durable:
                opened.flush()
                os.fsync(opened.fileno())
        return new

    def _force_names(self, file: Path) -> None:
        """Force the name of a new file to the disk, and those of its folders, which may be new as well."""
        if self._durable:
            for folder in file.parents:
                force_folder(folder)
                if folder == Path(self.path):
                    break
            if not self._has_place:
                force_place(Path(self.path))
                self._has_place = True


def force_folder(folder: Path) -> None:
    """Force the names of the files in ``folder`` to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def force_place(folder: Path) -> None:
    """Force the names of ``folder`` and of those above it to the disk, as far as this process may read them."""
    with contextlib.suppress(PermissionError):
        for above in folder.absolute().parents:
            force_folder(above)


def _new_name(file: Path) -> Path:
    """Return where this thread writes the content of a file before it gets its name."""
    return file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}.new")


def literal_path(path: str) -> str:
    """Return ``path`` for readers of Spark that would take it as a pattern."""
    return _PATTERN.sub(r"\\\1", path)
