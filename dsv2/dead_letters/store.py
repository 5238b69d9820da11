"""The files with the dead letters that nothing reads.

::

    <folder>/<job id>/job.json               the job that writes here
    <folder>/<job id>/letters/12.jsonl       the letters of micro-batch 12, one in each line
    <folder>/<job id>/replays/<name>.json    a request to process letters again
    <folder>/<job id>/replays/<name>.done    the letters that the job has processed again for it, or for a savepoint

As in a file sink, a micro-batch has one file, which a repetition of the micro-batch replaces. A micro-batch without
letters has none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dsv2.base.folders import Folder
from dsv2.checks.json_documents import read_document, write_document
from dsv2.dead_letters.letter import StoredLetter, encoded, parsed
from dsv2.dead_letters.letter_ids import LetterIds
from dsv2.errors import ConfigurationError, CorruptDataError

if TYPE_CHECKING:
    from dsv2.dead_letters.replay import Replays


FOLDER = "dead-letters"
"""The folder of letters in a checkpoint."""

_JOB = "job.json"
_LETTERS = "letters"
_REPLAYS = "replays"
_SUFFIX = ".jsonl"
_REMEDY = "Delete it."
_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*")


@dataclass(frozen=True)
class JobDescription:
    """The job whose letters a folder has, and the path of its checkpoint, or None."""

    job_name: str
    checkpoint: str | None


@dataclass(frozen=True)
class _Letters:
    """A request, or what was processed again for one.

    Attributes:
        letters: The ids of letters; of those that were processed again, entries of ``LetterIds``.
        requested_at: When they were requested; None: they were processed again.
    """

    letters: Sequence[str]
    requested_at: str | None = None


@dataclass(frozen=True)
class ReplayRequest:
    """A request to process letters again.

    Attributes:
        name: Unique.
        letters: The ids of the letters.
        is_done: Whether the job has recorded that it has processed them.
    """

    name: str
    letters: Sequence[str]
    is_done: bool


class JobLetters:
    """The letters of one job.

    Args:
        folder: The folder with the letters of all jobs. It need not exist.
        job_id: The job.

    Raises:
        CorruptDataError: ``job_id``, which a savepoint may have, cannot be the name of a folder.
    """

    def __init__(self, folder: Folder, job_id: str) -> None:
        if _ID.fullmatch(job_id) is None:
            raise CorruptDataError(f"{job_id!r} is not the id of a job, so it has no dead letters.")
        self._folder = folder.subfolder(job_id)
        self.job_id = job_id

    @property
    def path(self) -> str:
        """The path of its folder."""
        return self._folder.path

    def description(self) -> JobDescription | None:
        """Return the description of the job; None if it has no letters."""
        return read_document(self._folder, _JOB, JobDescription, _REMEDY)

    def describe(self, description: JobDescription) -> None:
        """Write the description."""
        write_document(self._folder, _JOB, description)

    def batches(self) -> list[int]:
        """Return the micro-batches with letters."""
        return self._folder.numbers(_LETTERS, suffix=_SUFFIX)

    def letters(self, batches: Collection[int] | None = None) -> Iterator[StoredLetter]:
        """Return the letters in order, those of ``batches`` only (None: all).

        Raises:
            CorruptDataError: A file is damaged.
        """
        for batch_id in self.batches() if batches is None else sorted(batches):
            name = _file(batch_id)
            if (data := self._folder.read(name)) is not None:
                yield from parsed(data, self.job_id, batch_id, self._folder.place(name))

    def write(self, batch_id: int, letters: Sequence[Mapping[str, Any]]) -> None:
        """Write the letters of a micro-batch, in place of those of an earlier attempt. There is at least one."""
        self._folder.write(_file(batch_id), encoded(letters))

    def delete_from(self, batch_id: int) -> None:
        """Delete the letters of a micro-batch and later ones, whose records are processed again."""
        for number in reversed(self.batches()):
            if number >= batch_id:
                self._folder.delete(_file(number))

    def requests(self) -> list[ReplayRequest]:
        """Return the requests, those that are done included.

        Raises:
            CorruptDataError: A file is damaged.
        """
        names = self._folder.sizes(_REPLAYS)
        found = []
        for name in sorted(names):
            stem, _, suffix = name.rpartition(".")
            if suffix == "json" and (entry := self._replay(name)) is not None:
                found.append(ReplayRequest(stem, entry.letters, f"{stem}.done" in names))
        return found

    def replayed(self) -> LetterIds:
        """Return the letters that the job has recorded as processed again.

        Raises:
            CorruptDataError: A file is damaged.
        """
        done = [self._replay(name) for name in self._folder.sizes(_REPLAYS) if name.endswith(".done")]
        return LetterIds(letter for entry in done if entry is not None for letter in entry.letters)

    def request(self, letters: Sequence[str]) -> str:
        """Request to process letters again, and return the name of the request."""
        name = str(uuid4())
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_document(self._folder, f"{_REPLAYS}/{name}.json", _Letters(letters, now))
        return name

    def withdraw(self, name: str) -> None:
        """Delete a request."""
        self._folder.delete(f"{_REPLAYS}/{name}.json")

    def finish(self, requests: Iterable[str], letters: Collection[str]) -> None:
        """Record that requests are done, and which letters the job has processed again, also without a request.

        ``letters``: Entries of ``LetterIds``.
        """
        names, replayed = set(requests), LetterIds(letters)
        for request in self.requests():
            if request.name in names and not request.is_done:
                self._write_done(request.name, [letter for letter in request.letters if letter in replayed])
        recorded = self.replayed()
        if others := [letter for letter in letters if letter not in recorded]:
            self._write_done(str(uuid4()), others)

    def _write_done(self, name: str, letters: Sequence[str]) -> None:
        write_document(self._folder, f"{_REPLAYS}/{name}.done", _Letters(letters))

    def _replay(self, name: str) -> _Letters | None:
        return read_document(self._folder, f"{_REPLAYS}/{name}", _Letters, _REMEDY)


def _file(batch_id: int) -> str:
    return f"{_LETTERS}/{batch_id}{_SUFFIX}"


def jobs_in(folder: Folder) -> list[JobLetters]:
    """Return the letters of each job in a folder."""
    found = (JobLetters(folder, job_id) for job_id in sorted(folder.sizes()) if _ID.fullmatch(job_id))
    return [letters for letters in found if letters.description() is not None]


class LetterWriter:
    """Writes the letters of one run of a job. A run without letters writes nothing.

    Args:
        letters: The letters of the job. None: it has no folder for them.
        job_name: The name of the job.
        checkpoint: The path of its checkpoint, or None.
    """

    def __init__(self, letters: JobLetters | None, job_name: str, checkpoint: str | None) -> None:
        self._letters = letters
        self._description = JobDescription(job_name, checkpoint)
        self._has_begun = False
        self._recorded: Replays | None = None

    def write(self, batch_id: int, letters: Iterable[Mapping[str, Any]]) -> None:
        """Write the letters of a micro-batch, before it is committed. Called for each one, even without letters.

        Raises:
            ConfigurationError: Another checkpoint has continued the job.
        """
        if self._letters is None:
            return
        in_order = sorted(letters, key=lambda letter: (letter["operator"], letter["subtask"]))
        if not self._has_begun:
            self._begin(self._letters, batch_id)
        if not in_order:
            return
        found = self._letters.description()
        if found is None:
            self._letters.describe(self._description)
        elif found.checkpoint != self._description.checkpoint:
            raise ConfigurationError(
                f"The dead letters in {self._letters.path} are written by a job that started from a savepoint of this "
                f"one, from the checkpoint {found.checkpoint}. Stop one of them. To run both, start from the "
                f"savepoint with as_new_job=True."
            )
        self._letters.write(batch_id, in_order)

    def record_replays(self, replays: Replays) -> None:
        """Record for readers of the folder what was processed again. Called when the checkpoint has it, too."""
        if self._letters is not None and replays.letters and replays != self._recorded:
            self._letters.finish(replays.requests, replays.letters)
            self._recorded = replays

    def _begin(self, letters: JobLetters, first_batch: int) -> None:
        # Another program may have written the letters of this micro-batch, and it may be older than its letters. Not
        # before the sinks have accepted the micro-batch: they refuse a checkpoint that is too old.
        letters.delete_from(first_batch)
        if letters.description() is not None:
            letters.describe(self._description)
        self._has_begun = True
