"""Deletes files that no reader and no writer of a sink needs, also while a job writes to it."""

from __future__ import annotations

from dsv2.base.folders import Folder
from dsv2.file_log.entry import Pending, Replacement
from dsv2.file_log.merge_selection import segments_name
from dsv2.file_log.names import DATA, PENDING, REPLACING, Staging
from dsv2.file_log.state import LogState, read_log, read_part


def clean(folder: Folder, before_ms: int, *, dry_run: bool = False) -> dict[str, int]:
    """Delete what failed attempts have left, and files that were merged.

    Never deletes files of the output, of a micro-batch that is prepared, or of the newest attempt of a run that has not
    ended normally, which may still be writing.

    Args:
        folder: The folder of the sink.
        before_ms: Only attempts that began, and files that were merged, before this time in ms since the epoch.
        dry_run: Whether to delete nothing.

    Returns:
        The files that were deleted, with their sizes in bytes.

    Raises:
        CorruptDataError: The log is damaged.
    """
    state = read_log(folder)
    deleted: dict[str, int] = {}
    for staging in _unused(folder, state, before_ms):
        deleted |= {f"{staging}/{name}": size for name, size in folder.tree(staging).items()}
        if not dry_run:
            folder.remove(staging)
    for path in [path for path, time_ms in state.replaced.items() if time_ms < before_ms]:
        parent, _, name = path.rpartition("/")
        size = folder.sizes(parent).get(name)
        if size is not None:
            deleted[path] = size
        if not dry_run:
            folder.delete(path)
            folder.delete(segments_name(path))
    return deleted


def _unused(folder: Folder, state: LogState, before_ms: int) -> list[str]:
    used = {found.name for path in (*state.files, *state.replaced) if (found := Staging.of(path)) is not None}
    in_use = (read_part(folder, PENDING, Pending), read_part(folder, REPLACING, Replacement))
    used |= {found.staging for found in in_use if found is not None}
    attempts = [found for name in folder.sizes(DATA) if (found := Staging.of(f"{DATA}/{name}")) is not None]
    unused = sorted((found.time_ms, found.name) for found in attempts if found.name not in used)
    if unused and not state.is_closed:
        unused.pop()
    return [name for time_ms, name in unused if time_ms < before_ms]
