"""Copies of checkpoints, also while their jobs run."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from dsv2.base.folders import force_folder
from dsv2.checkpoint.folder_kinds import LOCAL_FILES
from dsv2.errors import ConfigurationError, CorruptDataError, Dsv2Error
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.local.restoration import on_disk

_COPIED_BYTES = 1 << 20


def back_up(checkpoint: str, path: str) -> int:
    """Copy a checkpoint to a new folder, as of its last micro-batch or a later one, and return the number of that.

    Raises:
        ConfigurationError: There is no complete micro-batch, ``path`` exists, or it cannot be written.
        CorruptDataError: The checkpoint is damaged.
    """
    source, target = Path(on_disk(checkpoint).path), Path(on_disk(path).path)
    if target.exists():
        raise ConfigurationError(f"{target} exists already. Name a new folder for the backup.")
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, new, ignore_errors=True)
            batch_id = _copy_logs(source, new)
            _copy_others(source, new)  # after the logs: the next start writes later ones again
            for folder, _, _ in os.walk(new):
                force_folder(Path(folder))
            os.rename(new, target)
            force_folder(target.parent)
    except OSError as error:
        raise ConfigurationError(f"The backup {target} cannot be written: {error}.") from error
    return batch_id


def _copy_logs(source: Path, target: Path) -> int:
    """Copy the logs, and return the last micro-batch that they have.

    Each is copied up to its size at one moment. That of a worker process gets a transaction first, so it comes last.
    The content of segments never changes, nor are their names used twice. So a copy is complete if it has all segments
    that its last transaction refers to. It rarely lacks one, since the job has to begin a segment while others are
    opened. Then it is made again.
    """
    error: Dsv2Error
    while True:
        shutil.rmtree(target / LOCAL_FILES, ignore_errors=True)
        logs = [source / LOCAL_FILES, *sorted(source.glob(f"{LOCAL_FILES}/*/*"))]
        before = _segments(logs)
        with ExitStack() as stack:
            parts = [part for log in logs for part in _open_segments(log, stack)]
            has_moved = _segments(logs) != before
            for file, size in parts:  # they can be read also when the job has deleted them
                _copy(file, target / Path(file.name).relative_to(source), size)
        checkpoint = LocalCheckpoint(on_disk(target))
        try:
            if (stored := checkpoint.last()) is None:
                error = ConfigurationError(f"The checkpoint {source} has no complete micro-batch.")
            elif not checkpoint.lacks_segments():
                return stored.batch_id
            else:
                error = CorruptDataError(f"The checkpoint {source} lacks a segment.")
        except CorruptDataError as damage:  # also of a worker that has begun a segment meanwhile
            error = damage
        finally:
            checkpoint.release()
        if not has_moved:
            raise error


def _segments(logs: Iterable[Path]) -> list[Path]:
    """Return the segments of logs, the last one of each log first."""
    return [segment for log in logs for segment in sorted(log.glob("[0-9]*.log"), reverse=True)]


def _open_segments(log: Path, stack: ExitStack) -> list[tuple[IO[bytes], int]]:
    """Open the segments of a log, and return them with their sizes."""
    opened: list[IO[bytes]] = []
    for segment in _segments([log]):  # the job deletes the first one first
        with contextlib.suppress(FileNotFoundError):
            opened.append(stack.enter_context(segment.open("rb")))
    return [(file, os.fstat(file.fileno()).st_size) for file in opened]


def _copy_others(source: Path, target: Path) -> None:
    """Copy the files beside the log. The job may replace and delete them."""
    for file in (Path(folder, name) for folder, _, names in os.walk(source) for name in names):
        if file.relative_to(source).parts[0] != LOCAL_FILES and not file.name.startswith("."):
            with contextlib.suppress(FileNotFoundError), open(file, "rb") as opened:
                _copy(opened, target / file.relative_to(source), sys.maxsize)


def _copy(source: IO[bytes], target: Path, size: int) -> None:
    """Copy the first ``size`` bytes at most."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as file:
        while size > 0 and (data := source.read(min(size, _COPIED_BYTES))):
            size -= file.write(data)
        file.flush()
        os.fsync(file.fileno())
