"""Copies of checkpoints, also while their jobs run."""

from __future__ import annotations

import contextlib
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from dsv2.base.folders import force_folder
from dsv2.checkpoint.folder_kinds import LOCAL_FILES
from dsv2.errors import ConfigurationError
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.local.page_log import PageLog
from dsv2.local.restoration import on_disk


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
            _copy_log(source / LOCAL_FILES, new / LOCAL_FILES)
            _copy_others(source, new)  # after the log: the next start writes later ones again
            copied = LocalCheckpoint(on_disk(new))
            stored = copied.last()
            copied.release()
            if stored is None:
                raise ConfigurationError(f"The checkpoint {source} has no complete micro-batch.")
            os.rename(new, target)
            force_folder(target.parent)
    except OSError as error:
        raise ConfigurationError(f"The backup {target} cannot be written: {error}.") from error
    return stored.batch_id


def _copy_log(source: Path, target: Path) -> None:
    """Copy the segments. The last one may get more transactions, until it is read.

    Their content never changes, nor are their names used twice. So a copy is complete if it has all segments that its
    last transaction refers to. It rarely lacks one, since the job has to begin a segment while they are listed.
    """
    while segments := sorted(source.glob("[0-9]*")):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        with ExitStack() as stack:
            files: list[IO[bytes]] = []
            for segment in reversed(segments):  # the job deletes the first one first
                with contextlib.suppress(FileNotFoundError):
                    files.append(stack.enter_context(open(segment, "rb")))
            for file in files:  # they can be read also when the job has deleted them
                _copy(file, target / Path(file.name).name)
        log = PageLog(str(target))
        log.recover(writes=False)
        log.close()
        if files and not log.lacks_segments:
            force_folder(target)
            return


def _copy_others(source: Path, target: Path) -> None:
    """Copy the files beside the log. The job may replace and delete them."""
    for file in (Path(folder, name) for folder, _, names in os.walk(source) for name in names):
        if file.relative_to(source).parts[0] != LOCAL_FILES and not file.name.startswith("."):
            with contextlib.suppress(FileNotFoundError), open(file, "rb") as opened:
                _copy(opened, target / file.relative_to(source))


def _copy(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as file:
        shutil.copyfileobj(source, file)
        file.flush()
        os.fsync(file.fileno())
