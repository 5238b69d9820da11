"""A disk that loses what a process has not forced to it: the end of files, names of files, and their removal."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ("Disk",)

_BLOCK = 512  # bytes, the least that a disk writes
_Name: TypeAlias = tuple[int, str, int]  # the folder, the name and the file that has it, as inodes


class Disk:
    """The disk with the folders in ``folder``. What they have at the beginning is on the disk.

    From now on it observes the calls of the process. It does not force anything itself, since the machine has power.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder = folder
        self._chance = chance
        self._shadows = Path(tempfile.mkdtemp(prefix=".shadows-", dir=folder))
        self._numbers = itertools.count()
        self._sizes: dict[int, int] = {}  # how much of a file is safe, by inode
        self._names: set[_Name] = set()  # that are safe
        self._moved: dict[str, str] = {}  # safe names by unsafe ones, of files that were renamed
        self._removed: dict[str, Path] = {}  # links to files whose safe names were removed or given to others
        for entry in self._entries():
            self._names.add(_name(entry))
            self._sizes[entry.inode()] = entry.stat(follow_symlinks=False).st_size
        self._rename, self._unlink = os.rename, os.unlink
        os.fsync = os.fdatasync = self._force
        os.rename = os.replace = self._renamed  # type: ignore[assignment]
        os.unlink = os.remove = self._unlinked

    def lose_power(self) -> None:
        """Lose what is not safe, in part or as a whole."""
        os.rename = os.replace = self._rename
        os.unlink = os.remove = self._unlink
        for entry in [entry for entry in self._entries() if _name(entry) not in self._names]:
            if self._chance.random() < 0.5 and os.path.lexists(entry.path):
                self._lose_name(entry)
        for entry in self._entries():
            if entry.is_file(follow_symlinks=False):
                self._lose_end(Path(entry.path), self._sizes.get(entry.inode(), 0))
        for path, shadow in self._removed.items():
            if self._chance.random() < 0.5 and os.path.isdir(os.path.dirname(path)):
                self._rename(shadow, path)

    def _lose_name(self, entry: os.DirEntry[str]) -> None:
        if (former := self._moved.get(entry.path)) is not None and os.path.isdir(os.path.dirname(former)):
            self._rename(entry.path, former)
        elif entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            self._unlink(entry.path)

    def _lose_end(self, file: Path, safe: int) -> None:
        size = file.stat().st_size
        if size <= safe:
            return
        data = bytearray(file.read_bytes())
        for start in range(safe - safe % _BLOCK, size, _BLOCK):
            if self._chance.random() < 0.5:
                begin, end = max(start, safe), min(start + _BLOCK, size)
                data[begin:end] = bytes(end - begin)
        file.write_bytes(data[: self._chance.choice([size, self._chance.randint(safe, size)])])

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """Yield the folders, and all that is in them. Files of the storm are beside them."""
        waiting = [str(self._folder)]
        while waiting:
            folder = waiting.pop()
            for entry in os.scandir(folder):
                is_folder = entry.is_dir(follow_symlinks=False)
                if not entry.name.startswith(".shadows-") and (is_folder or folder != str(self._folder)):
                    yield entry
                    if is_folder:
                        waiting.append(entry.path)

    def _force(self, fd: Any) -> None:
        status = os.fstat(fd)
        self._sizes[status.st_ino] = status.st_size
        if not os.path.isdir(folder := os.readlink(f"/proc/self/fd/{fd}")):
            return
        for entry in os.scandir(folder):
            self._names.add(_name(entry))
            self._moved.pop(entry.path, None)
        for path in [path for path in self._removed if os.path.dirname(path) == folder]:
            self._unlink(self._removed.pop(path))

    def _renamed(self, source: Any, target: Any, **options: Any) -> None:
        source, target = os.fspath(source), os.fspath(target)
        self._keep(target)
        is_safe = os.path.lexists(source) and _name_of(source) in self._names
        self._rename(source, target, **options)
        former = self._moved.pop(source, None)
        if is_safe or former is not None:
            self._moved[target] = former or source

    def _unlinked(self, path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is None:
            self._keep(os.fspath(path))
        self._unlink(path, dir_fd=dir_fd)

    def _keep(self, path: str) -> None:
        """Keep the file whose safe name is removed."""
        if path.startswith(f"{self._folder}{os.sep}") and os.path.isfile(path) and _name_of(path) in self._names:
            shadow = self._shadows / str(next(self._numbers))
            os.link(path, shadow)
            self._removed.setdefault(path, shadow)


def _name(entry: os.DirEntry[str]) -> _Name:
    return os.stat(os.path.dirname(entry.path)).st_ino, entry.name, entry.inode()


def _name_of(path: str) -> _Name:
    return os.stat(os.path.dirname(path)).st_ino, os.path.basename(path), os.stat(path, follow_symlinks=False).st_ino
