"""A disk that loses what processes have not forced to it: the end of files, names of files, and their removal."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ("Disk",)

_BLOCK = 512  # bytes, the least that a disk writes
_SHADOWS, _EVENTS = ".shadows", ".events"
_Name: TypeAlias = tuple[int, str, int]  # the folder, the name and the file that has it, as inodes


class Disk:
    """The disk with the folders in ``folder``. What they have at the beginning is on the disk.

    From now on it observes the calls of this process, and of others with a disk in the same folder (``joined``), in one
    list of events. It does not force anything itself, since the machine has power.

    Args:
        folder: The folder.
        chance: Determines what is lost.
        joins: Whether another process of the job has begun.
    """

    def __init__(self, folder: Path, chance: random.Random, *, joins: bool = False) -> None:
        self._folder = folder
        self._chance = chance
        self._shadows = folder / _SHADOWS
        self._numbers = itertools.count()
        self._sizes: dict[int, int] = {}  # how much of a file is safe, by inode
        self._names: set[_Name] = set()  # that are safe
        self._moved: dict[str, str] = {}  # safe names by unsafe ones, of files that were renamed
        self._removed: dict[str, Path] = {}  # links to files whose safe names were removed or given to others
        if not joins:
            shutil.rmtree(self._shadows, ignore_errors=True)
            self._shadows.mkdir()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if joins else os.O_TRUNC)
        self._events = os.open(folder / _EVENTS, flags)
        if not joins:
            for entry in self._entries():
                self._note("safe", _name(entry), entry.stat(follow_symlinks=False).st_size)
        self._rename, self._unlink, self._truncate = os.rename, os.unlink, os.ftruncate
        os.fsync = os.fdatasync = self._force
        os.rename = os.replace = self._renamed  # type: ignore[assignment]
        os.unlink = os.remove = self._unlinked
        os.ftruncate = self._truncated

    @classmethod
    def joined(cls, folder: Path) -> None:
        """Observe the calls of this process too, if another one has a disk in ``folder``."""
        if (folder / _EVENTS).exists():
            cls(folder, random.Random(0), joins=True)

    def lose_power(self) -> None:
        """Lose what is not safe, in part or as a whole. No other process of the job may run."""
        os.rename = os.replace = self._rename
        os.unlink = os.remove = self._unlink
        os.ftruncate = self._truncate
        for line in (self._folder / _EVENTS).read_text().splitlines():
            kind, *arguments = json.loads(line)
            getattr(self, f"_after_{kind}")(*arguments)
        (self._folder / _EVENTS).unlink()
        for entry in [entry for entry in self._entries() if _name(entry) not in self._names]:
            if self._chance.random() < 0.5 and os.path.lexists(entry.path):
                self._lose_name(entry)
        for entry in self._entries():
            if entry.is_file(follow_symlinks=False):
                self._lose_end(Path(entry.path), self._sizes.get(entry.inode(), 0))
        for path, shadow in self._removed.items():
            if self._chance.random() < 0.5 and os.path.isdir(os.path.dirname(path)):
                self._rename(shadow, path)

    def _note(self, *event: object) -> None:
        os.write(self._events, f"{json.dumps(event)}\n".encode())

    def _after_safe(self, name: list[Any], size: int) -> None:
        self._names.add((name[0], name[1], name[2]))
        self._sizes[name[2]] = size

    def _after_forced(self, file: int, size: int) -> None:
        self._sizes[file] = size

    def _after_listed(self, folder: str, names: list[list[Any]]) -> None:
        for inode, name, file in names:
            self._names.add((inode, name, file))
            self._moved.pop(f"{folder}{os.sep}{name}", None)
        for path in [path for path in self._removed if os.path.dirname(path) == folder]:
            self._unlink(self._removed.pop(path))

    def _after_truncated(self, file: int, size: int) -> None:
        self._sizes[file] = min(self._sizes.get(file, 0), size)

    def _after_kept(self, path: str, shadow: str, name: list[Any]) -> None:
        if (name[0], name[1], name[2]) in self._names:
            self._removed.setdefault(path, Path(shadow))

    def _after_renamed(self, source: str, target: str, name: list[Any]) -> None:
        former = self._moved.pop(source, None)
        if (name[0], name[1], name[2]) in self._names or former is not None:
            self._moved[target] = former or source

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
                if entry.name != _SHADOWS and (is_folder or folder != str(self._folder)):
                    yield entry
                    if is_folder:
                        waiting.append(entry.path)

    def _force(self, fd: Any) -> None:
        status = os.fstat(fd)
        self._note("forced", status.st_ino, status.st_size)
        if os.path.isdir(folder := os.readlink(f"/proc/self/fd/{fd}")):
            self._note("listed", folder, [_name(entry) for entry in os.scandir(folder)])

    def _renamed(self, source: Any, target: Any, **options: Any) -> None:
        source, target = os.fspath(source), os.fspath(target)
        self._keep(target)
        if os.path.lexists(source):
            self._note("renamed", source, target, _name_of(source))
        self._rename(source, target, **options)

    def _unlinked(self, path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is None:
            self._keep(os.fspath(path))
        self._unlink(path, dir_fd=dir_fd)

    def _truncated(self, fd: int, length: int) -> None:
        self._note("truncated", os.fstat(fd).st_ino, length)
        self._truncate(fd, length)

    def _keep(self, path: str) -> None:
        """Keep a file whose name is removed."""
        if path.startswith(f"{self._folder}{os.sep}") and os.path.isfile(path):
            shadow = self._shadows / f"{os.getpid()}-{next(self._numbers)}"
            os.link(path, shadow)
            self._note("kept", path, str(shadow), _name_of(path))


def _name(entry: os.DirEntry[str]) -> _Name:
    return os.stat(os.path.dirname(entry.path)).st_ino, entry.name, entry.inode()


def _name_of(path: str) -> _Name:
    return os.stat(os.path.dirname(path)).st_ino, os.path.basename(path), os.stat(path, follow_symlinks=False).st_ino
