"""Damage to the files of a checkpoint."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ("DAMAGES", "Target", "drop_checksums", "has_checksum", "targets")


@dataclass(frozen=True)
class Target:
    """A file to be damaged. Paths are relative to the checkpoint.

    Attributes:
        kind: The path of the file with its numbers replaced.
        file: The path of the file.
        older: An earlier file of the same kind, if there is one.
    """

    kind: str
    file: str
    older: str | None = None


def targets(checkpoint: Path) -> Iterator[Target]:
    """Yield the newest file of every kind, and also the one before it for offsets and commits."""
    kinds: dict[tuple[str, str], list[Path]] = {}
    for file in checkpoint.rglob("*"):
        if file.is_file() and not (file.name.startswith(".") and file.suffix == ".crc"):
            path = file.relative_to(checkpoint)
            kinds.setdefault((_kind(path), str(path.parent)), []).append(path)
    seen: set[str] = set()
    for (kind, _), files in sorted(kinds.items(), key=lambda entry: (entry[0][0], -_size(checkpoint, entry[1]))):
        if kind in seen:
            continue  # the same kind in a smaller partition
        seen.add(kind)
        files.sort(key=_number)
        yield Target(f"{kind}, newest", str(files[-1]), str(files[-2]) if len(files) > 1 else None)
        if len(files) > 1 and kind.startswith(("offsets", "commits")):
            yield Target(f"{kind}, before", str(files[-2]), str(files[-3]) if len(files) > 2 else None)


def _kind(path: Path) -> str:
    name = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", str(path))
    return re.sub(r"(?<![a-z0-9])\d+", "N", name)


def _number(path: Path) -> tuple[int, str]:
    return int(re.match(r"\d*", path.name)[0] or -1), path.name  # type: ignore[index]  # it always matches


def _size(checkpoint: Path, files: list[Path]) -> int:
    return sum((checkpoint / file).stat().st_size for file in files)


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


def _rewrite(change: Callable[[bytes], bytes]) -> Callable[[Path, Target], bool]:
    def damage(checkpoint: Path, target: Target) -> bool:
        file = checkpoint / target.file
        content = file.read_bytes()
        if content:
            file.write_bytes(change(content))
        return bool(content)

    return damage


def _delete(checkpoint: Path, target: Target) -> bool:
    (checkpoint / target.file).unlink()
    return True


def _replace(checkpoint: Path, target: Target) -> bool:
    if target.older is None:
        return False
    file, older = checkpoint / target.file, checkpoint / target.older
    shutil.copyfile(older, file)
    if _sum_of(file).exists() and _sum_of(older).exists():
        shutil.copyfile(_sum_of(older), _sum_of(file))  # a restored backup has both files
    return True


def _sum_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def drop_checksums(checkpoint: Path) -> None:
    """Delete Hadoop's checksum files, which do not exist on HDFS and object stores."""
    for file in checkpoint.rglob(".*.crc"):
        file.unlink()


def has_checksum(checkpoint: Path, target: Target) -> bool:
    """Return whether there is a Hadoop checksum file for the file."""
    return _sum_of(checkpoint / target.file).exists()


DAMAGES: Mapping[str, Callable[[Path, Target], bool]] = {
    "emptied": _rewrite(lambda content: b""),
    "truncated": _rewrite(lambda content: content[: len(content) // 2]),
    "byte changed": _rewrite(_flipped),
    "deleted": _delete,
    "older": _replace,
}
"""Functions that damage a file. They return False if the damage does not apply to it."""
