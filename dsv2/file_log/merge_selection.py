"""Chooses which files of a sink are merged, and records where the micro-batches in a merged file end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Protocol

from dsv2.base.folders import Folder, ReadableFolder
from dsv2.checks.json_documents import read_existing, write_document
from dsv2.file_log.entry import DataFile
from dsv2.file_log.names import SEGMENTS, partition_folder


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Files that become one.

    Attributes:
        folder: The folders of the partition columns; empty without.
        schema: The index of the schema of all files.
        files: The files, in the order in which their records are to be written.
    """

    folder: str
    schema: int
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged file of a group.

    Attributes:
        path: Where it is, relative to the folder of the sink.
        size: Bytes.
        lengths: The part of each file of the group, in rows for Parquet and in bytes for other formats.
    """

    path: str
    size: int
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Segments:
    """For each micro-batch in a merged file, where its records end."""

    ends: list[tuple[int, int]]


class Merger(Protocol):
    """Merges files of one format."""

    def __call__(self, groups: Sequence[MergeGroup], staging: str, /) -> list[Merged]:
        """Write one file for each group, with the records of its files in their order.

        Args:
            groups: The groups.
            staging: A new folder for the files, relative to that of the sink.
        """


def in_order(files: Iterable[DataFile]) -> list[DataFile]:
    """Return files in the order in which readers read them, which merging does not change."""
    return sorted(files, key=_order)


def _order(file: DataFile) -> tuple[str, int, str]:
    return partition_folder(file.path), file.first, file.path.rpartition("/")[2]


def merge_groups(files: Iterable[DataFile], target_bytes: int) -> list[MergeGroup]:
    """Divide files into groups that have about ``target_bytes``. A file that is large enough is not in a group.

    A file on its own is in a group only if it is hidden.
    """
    groups = []
    for (folder, schema), found in groupby(in_order(files), key=_kind):
        for chosen in _by_size(found, target_bytes):
            if len(chosen) > 1 or chosen[0].is_hidden:
                groups.append(MergeGroup(folder, schema, tuple(chosen)))
    return groups


def _kind(file: DataFile) -> tuple[str, int]:
    return partition_folder(file.path), file.schema


def _by_size(files: Iterator[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    chosen: list[DataFile] = []
    size = 0
    for file in files:
        if chosen and size + file.size > target_bytes:
            yield chosen
            chosen, size = [], 0
        chosen.append(file)
        size += file.size
    if chosen:
        yield chosen


def segments_name(path: str) -> str:
    """Return where the ends of the micro-batches in the file ``path`` are stored."""
    return f"{SEGMENTS}/{path.rpartition('/')[2]}.json"


def write_ends(folder: Folder, group: MergeGroup, lengths: Sequence[int], path: str) -> None:
    """Store where the records of each micro-batch end in the merged file ``path``."""
    ends: dict[int, int] = {}
    starts = accumulate(lengths, initial=0)
    for file, start, length in zip(group.files, starts, lengths, strict=False):
        for batch, end in (read_ends(folder, file) or {file.last: length}).items():
            ends[batch] = start + end
    if len(ends) > 1:
        write_document(folder, segments_name(path), _Segments(list(ends.items())))


def read_ends(folder: ReadableFolder, file: DataFile) -> dict[int, int]:
    """Return where the records of each micro-batch end in ``file``, by micro-batch, in order; empty if it has only one.

    Raises:
        CorruptDataError: The information about a merged file is missing or damaged.
    """
    if file.first == file.last:
        return {}
    remedy = f"It stores which records of {file.path} belong to which micro-batch. Restore it from a backup."
    return dict(read_existing(folder, segments_name(file.path), _Segments, remedy).ends)
