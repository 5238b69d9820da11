"""The folder of a ``FileSink``, for its only writer.

A micro-batch is first written to a folder of its own and *prepared*, and after the commit of the checkpoint it is
*published*: its files are moved to their places, or stay where they are until they are merged, and the log gets an
entry. A merge is recorded before its files are moved, so that it can be completed. All steps can be interrupted, and
``begin`` of the next run completes or discards them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dsv2.base.clock import Clock
from dsv2.base.folders import Folder
from dsv2.checks.json_documents import write_document
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.file_log.entry import DataFile, Entry, Pending, Replacement
from dsv2.file_log.log import FileLog, LogConflictError
from dsv2.file_log.merge_selection import MergeGroup, Merger, merge_groups, segments_name, write_ends
from dsv2.file_log.names import DATA, PENDING, REPLACING, SEGMENTS, Staging, is_hidden
from dsv2.file_log.state import LogState, read_log, read_part

TARGET_BYTES = 128 << 20
"""The default size of merged files."""


@dataclass(frozen=True, slots=True)
class Rolling:
    """The schedule for merging the small files of micro-batches.

    Attributes:
        interval_ms: At the latest this long after the first one was written.
        target_bytes: Or as soon as they have this size, which is also the size of merged files.
    """

    interval_ms: int
    target_bytes: int


class SinkFolder:
    """Writes micro-batches and merges, each exactly once.

    ``prepare`` may be called by another thread than all other methods.
    """

    def __init__(
        self,
        folder: Folder,
        clock: Clock,
        run: str,
        *,
        rolling: Rolling | None = None,
        retention_ms: int = 0,
        suffix: str | None = None,
        entries_per_snapshot: int = 100,
    ) -> None:
        """Open the folder. Nothing is written before ``begin``.

        Args:
            folder: The folder of the sink.
            clock: The clock.
            run: The id of the run.
            rolling: When small files are merged. None: never; they are moved to their places at once.
            retention_ms: How long files that were merged are kept for readers.
            suffix: The extension of the names of files in their places. None: that which they are written with.
            entries_per_snapshot: The number of entries of the log after which it is summarized.

        Raises:
            CorruptDataError: The log is damaged.
        """
        self._folder = folder
        self._clock = clock
        self._run = run
        self._rolling = rolling
        self._retention_ms = retention_ms
        self._suffix = suffix
        self._log = FileLog(folder, entries_per_snapshot=entries_per_snapshot)
        self._pending: Pending | None = None
        self._attempts = 0
        self._hidden: tuple[int, list[DataFile]] = (0, [])  # as of a version
        self._staged: set[str] = set()  # folders that are in use but in no file
        self._lock = threading.Lock()

    @property
    def state(self) -> LogState:
        """The published output."""
        return self._log.state

    def begin(self, first_batch: int | None) -> None:
        """Begin to write. Completes what an earlier run has left, and deletes what it has not committed.

        Args:
            first_batch: The micro-batch that the run begins with. All earlier ones are committed. None: the run writes
                no micro-batches, and leaves a prepared one as it is.

        Raises:
            CorruptDataError: A file of the folder is damaged or missing.
        """
        self._log.append(self._entry(opens=True))  # from here on, an earlier run cannot write
        self._complete_replacement()
        if first_batch is not None:
            self.publish_prepared(first_batch)
            self._folder.delete(PENDING)
        elif (pending := read_part(self._folder, PENDING, Pending)) is not None:
            self._staged.add(pending.staging)
        self._remove_unused_staging()
        self._remove_unused_segments()

    def publish_prepared(self, first_batch: int) -> None:
        """Publish the micro-batch that an earlier run has prepared, if it is before ``first_batch``.

        Raises:
            LogConflictError: Another run writes to the folder.
            CorruptDataError: A file is missing.
        """
        pending = read_part(self._folder, PENDING, Pending)
        if pending is not None and pending.batch < first_batch:
            self._pending = pending
            self.publish()

    def stage(self, batch: int) -> str:
        """Return a new folder, relative to that of the sink, to write a micro-batch to."""
        return self._new_staging(str(batch))

    def prepare(self, batch: int, staging: str, schema: int = 0) -> None:
        """Record the files in ``staging`` as the records of ``batch``. Earlier micro-batches must be published.

        ``schema``: The index of the schema of the files.
        """
        files = _data_files(self._folder, staging)
        pending = Pending(batch, staging, tuple(sorted(files.items())), schema)
        write_document(self._folder, PENDING, pending)
        self._pending = pending

    def publish(self) -> None:
        """Make the prepared micro-batch part of the output. Call it when the micro-batch is committed.

        Raises:
            LogConflictError: Another run writes to the folder.
            CorruptDataError: A file is missing.
        """
        pending = self._pending
        if pending is None:
            return
        is_new = self._log.state.last_batch < pending.batch
        if is_new:
            moves, added = self._places(pending)
            self._add(moves, self._entry(batch=pending.batch, added=added))
        self._folder.delete(PENDING)
        if is_new and self._rolling is None:  # an earlier run may have left its files there, to be merged
            self._folder.remove(pending.staging)
        self._pending = None
        self._release(pending.staging)
        if self._log.needs_snapshot:
            self._summarize()

    def next_roll_ms(self) -> int | None:
        """Return when the next merge is due, in ms since the epoch; None if there is nothing to merge."""
        small = self._small()
        times = [staging.time_ms for file in small if (staging := Staging.of(file.path)) is not None]
        if not times:
            return None
        if self._rolling is None or sum(file.size for file in small) >= self._rolling.target_bytes:
            return min(times)
        return min(times) + self._rolling.interval_ms

    def roll(self, merger: Merger) -> None:
        """Merge the small files of micro-batches, and move the results to their places.

        Also those of an earlier run, if this one has no ``rolling``.
        """
        target_bytes = TARGET_BYTES if self._rolling is None else self._rolling.target_bytes
        self._replace(merge_groups(self._small(), target_bytes), merger)

    def compact(self, target_bytes: int, merger: Merger) -> int:
        """Merge all files that are smaller than ``target_bytes``. Returns the number of files that were replaced."""
        groups = merge_groups(self._log.state.files.values(), target_bytes)
        self._replace(groups, merger)
        return sum(len(group.files) for group in groups)

    def truncate(self, last: int) -> int:
        """Remove the records of all micro-batches after ``last``. Returns the number of files that were deleted.

        Raises:
            ConfigurationError: A file also has records of earlier micro-batches, because it was merged.
        """
        removed = [file for file in self._log.state.files.values() if file.last > last]
        for file in removed:
            if file.first <= last:
                raise ConfigurationError(
                    f"{self._folder.place(file.path)} has the records of the micro-batches {file.first} to "
                    f"{file.last}, which were merged, so they cannot be removed after {last}."
                )
        last = min(last, self._log.state.last_batch)
        self._log.append(self._entry(batch=last, removed=[file.path for file in removed]))
        for file in removed:
            self._folder.delete(file.path)
        return len(removed)

    def close(self) -> None:
        """Record that the run has ended normally."""
        self._log.append(self._entry(closes=True))
        self._summarize()

    def _small(self) -> list[DataFile]:
        state = self._log.state
        if self._hidden[0] != state.version:
            self._hidden = state.version, [file for file in state.files.values() if file.is_hidden]
        return self._hidden[1]

    def _entry(
        self,
        *,
        batch: int | None = None,
        added: Sequence[DataFile] = (),
        removed: Sequence[str] = (),
        opens: bool = False,
        closes: bool = False,
    ) -> Entry:
        return Entry(self._clock.now_ms(), self._run, batch, tuple(added), tuple(removed), opens, closes)

    def _new_staging(self, kind: str) -> str:
        with self._lock:
            self._attempts += 1
            name = f"{DATA}/{kind}-{self._clock.now_ms()}-{self._run[:8]}-{self._attempts}"
            self._staged.add(name)
        return name

    def _release(self, staging: str) -> None:
        with self._lock:
            self._staged.discard(staging)

    def _places(self, pending: Pending) -> tuple[list[tuple[str, str]], list[DataFile]]:
        """Return the moves and the files of a micro-batch."""
        moves, added = [], []
        for number, (name, size) in enumerate(pending.files):
            path = f"{pending.staging}/{name}"
            if self._rolling is None:
                folder = name.rpartition("/")[0]
                target = self._place(folder, pending.batch, pending.batch, pending.staging, number, name)
                moves.append((path, target))
                path = target
            added.append(DataFile(path, size, pending.batch, pending.batch, pending.schema))
        return moves, added

    def _place(self, folder: str, first: int, last: int, staging: str, number: int, name: str) -> str:
        """Return the final path of the file ``name``. Paths sort by micro-batch and by number."""
        unique = staging.rpartition("/")[2].partition("-")[2]
        file = f"{first:010}-{last:010}-{unique}-{number:05}.{self._suffix or name.rpartition('.')[2]}"
        return f"{folder}/{file}" if folder else file

    def _replace(self, groups: Sequence[MergeGroup], merger: Merger) -> None:
        if not groups:
            return
        staging = self._new_staging("merge")
        moves, added = [], []
        for number, (group, merged) in enumerate(zip(groups, merger(groups, staging), strict=True)):
            first, last = group.files[0].first, max(file.last for file in group.files)
            target = self._place(group.folder, first, last, staging, number, group.files[0].path)
            write_ends(self._folder, group, merged.lengths, target)
            moves.append((merged.path, target))
            added.append(DataFile(target, merged.size, first, last, group.schema))
        removed = [file.path for group in groups for file in group.files]
        replacement = Replacement(staging, tuple(moves), tuple(added), tuple(removed))
        write_document(self._folder, REPLACING, replacement)
        self._complete(replacement)
        self._summarize()

    def _complete_replacement(self) -> None:
        replacement = read_part(self._folder, REPLACING, Replacement)
        if replacement is None:
            return
        known = self._log.state.files
        if known.keys() >= {file.path for file in replacement.added} or known.keys() >= set(replacement.removed):
            self._complete(replacement)
        else:  # of a run that another one had replaced
            self._undo(replacement.moves)
            self._folder.delete(REPLACING)

    def _complete(self, replacement: Replacement) -> None:
        if not all(file.path in self._log.state.files for file in replacement.added):
            entry = self._entry(added=replacement.added, removed=replacement.removed)
            try:
                self._add(replacement.moves, entry)
            except LogConflictError:
                self._folder.delete(REPLACING)
                raise
        self._folder.delete(REPLACING)
        self._folder.remove(replacement.staging)
        self._release(replacement.staging)

    def _add(self, moves: Iterable[tuple[str, str]], entry: Entry) -> None:
        """Move files to their places, and append ``entry``."""
        for source, target in moves:
            if not self._folder.move(source, target) and not _exists(self._folder, target):
                raise CorruptDataError(
                    f"{self._folder.place(source)} is missing. It has records that the output should contain."
                )
        try:
            self._log.append(entry)
        except LogConflictError:
            self._undo(moves)
            raise

    def _undo(self, moves: Iterable[tuple[str, str]]) -> None:
        """Delete files at their places, unless another run has published them."""
        published = read_log(self._folder).files
        for _, target in moves:
            if target not in published:
                self._folder.delete(target)

    def _summarize(self) -> None:
        """Delete files that were replaced a while ago, and write a snapshot of the log."""
        state = self._log.state
        limit = self._clock.now_ms() - self._retention_ms
        for path in [path for path, time_ms in state.replaced.items() if time_ms <= limit]:
            self._folder.delete(path)
            self._folder.delete(segments_name(path))
            del state.replaced[path]
        self._remove_unused_staging()
        self._log.write_snapshot()

    def _remove_unused_staging(self) -> None:
        state = self._log.state
        with self._lock:
            used = set(self._staged)
        used |= {staging.name for path in (*state.files, *state.replaced) if (staging := Staging.of(path)) is not None}
        for name in self._folder.sizes(DATA):
            if f"{DATA}/{name}" not in used:
                self._folder.remove(f"{DATA}/{name}")

    def _remove_unused_segments(self) -> None:
        state = self._log.state
        used = {segments_name(path) for path in (*state.files, *state.replaced)}
        for name in self._folder.sizes(SEGMENTS):
            if f"{SEGMENTS}/{name}" not in used:
                self._folder.delete(f"{SEGMENTS}/{name}")


def _data_files(folder: Folder, staging: str) -> dict[str, int]:
    return {name: size for name, size in folder.tree(staging).items() if size and not is_hidden(name)}


def _exists(folder: Folder, path: str) -> bool:
    parent, _, name = path.rpartition("/")
    return name in folder.sizes(parent)
