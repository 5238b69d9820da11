"""What Spark's own logs in a checkpoint say, read before Spark reads them: where a run begins, and what is damaged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID

from dsv2.errors import CorruptDataError
from runtime_spark.folders import Folder

__all__ = ("Beginning", "beginning_of")

_ALL = "put back a backup of the whole checkpoint, or start from a new checkpoint_location"


@dataclass(frozen=True)
class Beginning:
    """The micro-batch with which a run begins. ``repeats``: its offsets are logged already."""

    batch_id: int
    repeats: bool


def beginning_of(checkpoint: Folder) -> Beginning:
    """Where the next run of ``checkpoint`` begins. Raises ``CorruptDataError``, naming the file that is damaged."""
    offsets, commits = checkpoint.numbers("offsets"), checkpoint.numbers("commits")
    _check_metadata(checkpoint, begun=bool(offsets))
    if not offsets:
        return Beginning(0, repeats=False)
    last = offsets[-1]
    committed = bool(commits) and commits[-1] == last
    if commits:
        _check_commit(checkpoint, commits[-1])
    sources = _check_offsets(checkpoint, last, committed=committed)
    if last > 0:
        if last - 1 not in offsets:
            raise CorruptDataError(f"{checkpoint.place(f'offsets/{last - 1}')} is missing: {_ALL}.")
        before = _check_offsets(checkpoint, last - 1, committed=True)
        if before != sources:
            shorter = last if sources < before else last - 1
            way_out = _way_out_of_offsets(shorter, committed or shorter < last)
            raise CorruptDataError(
                f"{checkpoint.place(f'offsets/{shorter}')} is damaged: it has offsets of {min(sources, before)} "
                f"sources instead of {max(sources, before)}. {way_out}"
            )
    return Beginning(last + 1 if committed else last, repeats=not committed)


def _check_metadata(checkpoint: Folder, *, begun: bool) -> None:
    data = checkpoint.read("metadata")
    if data is None and not begun:
        return
    try:
        UUID(json.loads(data or b"")["id"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        found = "is missing" if data is None else f"is damaged: {_said(error)}"
        raise CorruptDataError(
            f"{checkpoint.place('metadata')} {found}. It holds the id of Spark's query and nothing else. Put it back "
            f'from a backup, or write {{"id":"<any UUID>"}} into it.'
        ) from error


def _check_offsets(checkpoint: Folder, number: int, *, committed: bool) -> int:
    """How many sources have offsets there."""
    name = f"offsets/{number}"
    try:
        version, metadata, *offsets = _lines(checkpoint, name)
        _check_version(version)
        if not isinstance(json.loads(metadata), dict):
            raise ValueError("its second line is not a JSON object")
        for offset in offsets:
            if offset != "-":
                json.loads(offset)
        if not offsets:
            raise ValueError("it has no offsets")
    except ValueError as error:
        raise CorruptDataError(
            f"{checkpoint.place(name)} is damaged: {_said(error)}. {_way_out_of_offsets(number, committed)}"
        ) from error
    return len(offsets)


def _way_out_of_offsets(number: int, committed: bool) -> str:
    if committed:
        return f"It says what micro-batch {number}, which is complete, has read: {_ALL}."
    return (
        f"It says what micro-batch {number}, which is not complete, was to read. Put it back from a backup, or delete "
        f"it if no sink has got anything of that micro-batch: then it is made up again, from what there is to read now."
    )


def _check_commit(checkpoint: Folder, number: int) -> None:
    name = f"commits/{number}"
    try:
        version, content, *_ = _lines(checkpoint, name)
        _check_version(version)
        if not isinstance(json.loads(content), dict):
            raise ValueError("its second line is not a JSON object")
    except ValueError as error:
        raise CorruptDataError(
            f"{checkpoint.place(name)} is damaged: {_said(error)}. It says that micro-batch {number} is complete. Put "
            f"it back from a backup, or delete it: then that micro-batch is repeated."
        ) from error


def _lines(checkpoint: Folder, name: str) -> list[str]:
    return (checkpoint.read(name) or b"").decode("utf-8").splitlines()


def _check_version(line: str) -> None:
    if not (line.startswith("v") and line[1:].isdigit()):
        raise ValueError(f"it begins with {line[:40]!r} instead of a version")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
