"""The last dead letters of a job for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsv2.base.folders import Folder
from dsv2.dead_letters import StoredLetter
from dsv2.dead_letters.store import FOLDER, JobLetters, jobs_in
from dsv2.views.dashboard.json_lines import Line, line_of

_MOST = 100  # of different errors
_MOST_READ = 1000
_MOST_BYTES = 4 << 20  # of a file, which holds the letters of a micro-batch


@dataclass(frozen=True, slots=True)
class Letters:
    """The last dead letters, the newest first.

    Attributes:
        letters: The newest letter with each error of an operator. ``count``: How many of those read have it.
        batches: The number of micro-batches with letters.
        note: What is not shown, and how to see it.
    """

    letters: tuple[Line, ...] = ()
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
    found: dict[tuple[str, str, str], StoredLetter] = {}
    counts = Counter[tuple[str, str, str]]()
    read = left_out = 0
    for batch, job in files:
        if len(found) >= _MOST or read >= _MOST_READ or _size(folder, job, batch) > _MOST_BYTES:
            left_out += 1
            continue
        for letter in _newest(job, batch, _MOST_READ - read):
            read += 1
            error = letter.operator, letter.callback, _error(letter)
            counts[error] += 1
            if len(found) < _MOST:
                found.setdefault(error, letter)
    note = f"{left_out} more micro-batches have letters: dsv2 dead-letters show {folder.path}" if left_out else ""
    return Letters(tuple(_line(letter, counts[error]) for error, letter in found.items()), len(files), note)


def _newest(job: JobLetters, batch: int, most: int) -> Iterator[StoredLetter]:
    return reversed(list(job.letters([batch]))[-most:])


def _size(folder: Folder, job: JobLetters, batch: int) -> int:
    name = job.path.removeprefix(folder.path).lstrip("/")
    return folder.sizes(f"{name}/letters").get(f"{batch}.jsonl", 0)


def _line(letter: StoredLetter, count: int) -> Line:
    position = ", ".join(f"{name} {value}" for name, value in (letter.position or {}).items())
    time = letter.time.isoformat(timespec="seconds")
    texts = {"time": time, "record": letter.record or "", "error": _error(letter), "position": position}
    return line_of(replace(letter, payload=None), **texts, count=count)


def _error(letter: StoredLetter) -> str:
    return f"{letter.error_type}: {letter.error_message}"
