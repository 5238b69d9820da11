"""The last dead letters of a job for the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsv2.base.folders import Folder
from dsv2.dead_letters import StoredLetter
from dsv2.dead_letters.store import FOLDER, JobLetters, jobs_in

_MOST = 100  # of different errors
_MOST_READ = 1000
_MOST_BYTES = 4 << 20  # of a file, which holds the letters of a micro-batch


@dataclass(frozen=True, slots=True)
class Letter:
    """The newest of the dead letters with one error of an operator. ``count``: How many of those read have it."""

    id: str
    time: str
    operator: str
    callback: str
    record: str
    error: str
    position: str
    traceback: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Letters:
    """The last dead letters, the newest first.

    Attributes:
        letters: One letter for each error.
        batches: The number of micro-batches with letters.
        note: What is not shown, and how to see it.
    """

    letters: tuple[Letter, ...] = ()
    batches: int = 0
    note: str = ""


def last_letters(folder: Folder | None) -> Letters:
    """Return the last dead letters below ``folder``, a checkpoint or a folder of letters.

    Raises:
        CorruptDataError: A file is damaged.
    """
    if folder is None:
        return Letters()
    jobs = jobs_in(folder.subfolder(FOLDER)) or jobs_in(folder)
    files = sorted(((batch, job) for job in jobs for batch in job.batches()), key=lambda file: -file[0])
    found: dict[tuple[str, str, str], Letter] = {}
    read = left_out = 0
    for batch, job in files:
        if len(found) >= _MOST or read >= _MOST_READ or _size(folder, job, batch) > _MOST_BYTES:
            left_out += 1
            continue
        for letter in _newest(job, batch, _MOST_READ - read):
            read += 1
            error = letter.operator, letter.callback, letter.error
            if error in found or len(found) < _MOST:
                known = found.setdefault(error, replace(letter, count=0))
                found[error] = replace(known, count=known.count + 1)
    note = f"{left_out} more micro-batches have letters: dsv2 dead-letters show {folder.path}" if left_out else ""
    return Letters(tuple(found.values()), len(files), note)


def _newest(job: JobLetters, batch: int, most: int) -> Iterator[Letter]:
    stored = list(job.letters([batch]))
    yield from map(_letter, reversed(stored[-most:]))


def _size(folder: Folder, job: JobLetters, batch: int) -> int:
    name = job.path.removeprefix(folder.path).lstrip("/")
    return folder.sizes(f"{name}/letters").get(f"{batch}.jsonl", 0)


def _letter(letter: StoredLetter) -> Letter:
    position = ", ".join(f"{name} {value}" for name, value in (letter.position or {}).items())
    return Letter(
        id=letter.id,
        time=letter.time.isoformat(timespec="seconds"),
        operator=letter.operator,
        callback=letter.callback,
        record=letter.record or "",
        error=f"{letter.error_type}: {letter.error_message}",
        position=position,
        traceback=letter.traceback,
    )
