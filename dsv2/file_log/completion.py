"""Completes the folders of file sinks to which a changed program no longer writes.

The last committed micro-batches of an earlier run may not be visible yet: a driver died before it published them, or
their small files were not merged. The sinks of a program complete their own folders. Those that were removed, or have
another path now, are completed here, before the checkpoint forgets them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dsv2.base.clock import Clock
from dsv2.base.folders import Folder
from dsv2.errors import DroppedStateWarning, IncompatibleCheckpointError
from dsv2.file_log.description import Description
from dsv2.file_log.entry import Pending
from dsv2.file_log.merge_selection import Merger
from dsv2.file_log.names import PENDING, REPLACING
from dsv2.file_log.ownership import OutputOwner, SinkPlace
from dsv2.file_log.sink_folder import SinkFolder
from dsv2.file_log.state import has_log, read_log, read_part

_RETENTION_MS = 3_600_000  # of files that were merged, for readers that have begun to read them


def has_batch(folder: Folder, batch: int) -> bool:
    """Return whether a folder has a micro-batch, or has it prepared, so that its completion publishes it."""
    pending = read_part(folder, PENDING, Pending)
    if pending is not None and pending.batch == batch:
        return True
    return has_log(folder) and read_log(folder).last_batch >= batch


@dataclass(frozen=True)
class Completion:
    """Completes folders at the start of a run.

    Attributes:
        open_folder: Opens a folder.
        merger: Returns what merges the small files of a folder.
        owner: The job and its checkpoint. Folders of others stay as they are.
        first_batch: The micro-batch with which the run begins. All earlier ones are committed.
        clock: The clock.
        allow_dropped_state: Whether to warn of a folder that cannot be completed, instead of the error.
    """

    open_folder: Callable[[str], Folder]
    merger: Callable[[Folder], Merger]
    owner: OutputOwner
    first_batch: int
    clock: Clock
    allow_dropped_state: bool

    def complete(self, left: Iterable[tuple[str, str]], run: str, *, takes_over: bool) -> None:
        """Complete the folders to which no sink writes any more. Called before the run writes anything.

        Args:
            left: The folders, with the uids of their former sinks.
            run: The id of the run.
            takes_over: Whether the folders are those of a savepoint, whose job may still run from its own checkpoint.
                Then only the micro-batch that is prepared is published, if the savepoint includes it.

        Raises:
            IncompatibleCheckpointError: A folder cannot be completed.
        """
        for uid, path in left:
            try:
                self._complete(path, run, takes_over=takes_over)
            except Exception as error:
                text = (
                    f"The sink {uid!r} of the earlier program wrote to {path}. Its last micro-batches may not be "
                    f"visible there, and cannot be completed: {type(error).__name__}: {error}"
                )
                if not self.allow_dropped_state:
                    raise IncompatibleCheckpointError(
                        f"{text} Make the folder usable, or start the earlier program once more, which completes it. "
                        f"To leave the folder as it is, start with allow_dropped_state=True."
                    ) from error
                warnings.warn(text, DroppedStateWarning, stacklevel=2)

    def _complete(self, path: str, run: str, *, takes_over: bool) -> None:
        folder = self.open_folder(path)
        if not has_log(folder) or not SinkPlace(folder, path, path).belongs_to(self.owner, takes_over=takes_over):
            return
        sink = former_sink(folder, self.clock, run)
        if takes_over:
            sink.publish_prepared(self.first_batch)
        elif _is_incomplete(folder):
            sink.begin(self.first_batch)
            sink.roll(self.merger(folder))
            sink.close()


def former_sink(folder: Folder, clock: Clock, run: str) -> SinkFolder:
    """Return the writer of a folder to which no sink of a running job writes."""
    description = Description.read(folder)
    suffix = None if description is None else description.format
    return SinkFolder(folder, clock, run, retention_ms=_RETENTION_MS, suffix=suffix)


def _is_incomplete(folder: Folder) -> bool:
    if folder.read(PENDING) is not None or folder.read(REPLACING) is not None:
        return True
    return any(file.is_hidden for file in read_log(folder).files.values())
