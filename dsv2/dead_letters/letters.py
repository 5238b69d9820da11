"""``DeadLetters``: reads the stored dead letters of jobs, and requests that they are processed again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING

from dsv2.base.folders import Folder
from dsv2.checks.paths import local_folder
from dsv2.dead_letters.letter import StoredLetter
from dsv2.dead_letters.letter_ids import LetterIds
from dsv2.dead_letters.store import FOLDER, JobLetters, jobs_in
from dsv2.errors import ConfigurationError
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.type_registry import TypeRegistry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OF_A_CHECKPOINT = ("dsv2", "commits", "offsets", "metadata", "local")


class LetterStatus(Enum):
    """The state of a letter.

    ``REQUESTED``: It is processed again at the next start of its job. ``REPLAYED``: It was processed again.
    ``LOST``: It cannot be processed again, see ``StoredLetter.obstacle``.
    """

    NEW = "new"
    REQUESTED = "requested"
    REPLAYED = "replayed"
    LOST = "cannot be replayed"


class DeadLetters:
    """The dead letters in a folder. Create one with ``open``. It shows the letters as they were when it was opened."""

    def __init__(self, folder: Folder) -> None:
        """``folder``: A folder of letters, or a checkpoint."""
        inside = folder.subfolder(FOLDER)
        self._jobs = {letters.job_id: letters for letters in jobs_in(inside) or jobs_in(folder)}
        if not self._jobs and not any(name in folder.sizes() for name in _OF_A_CHECKPOINT):
            raise ConfigurationError(
                f"{folder.path} has no dead letters and is not a checkpoint. Give the checkpoint_location of the job, "
                f"or the folder in dead_letters of execute."
            )

    @staticmethod
    def open(path: str | PathLike[str], *, spark: SparkSession | None = None) -> DeadLetters:
        """Open the letters of a checkpoint, or those in a folder.

        Args:
            path: The ``checkpoint_location`` of a job, or the folder that ``dead_letters`` of ``execute`` has named.
            spark: A session, for a path on another file system than the local disk. None (default): a local path.

        Raises:
            ConfigurationError: The folder is neither, or cannot be read.
        """
        if spark is None:
            return DeadLetters(local_folder(path, "Open it with spark=..."))
        usable = import_module("runtime_spark.frames.failures").usable
        with usable(f"The folder {fspath(path)}"):
            return DeadLetters(import_module("runtime_spark.platform.folders").open_folder(spark, fspath(path)))

    @cached_property
    def letters(self) -> Sequence[StoredLetter]:
        """All letters, by job and in order.

        Raises:
            CorruptDataError: A file is damaged; names it.
        """
        return [letter for of_job in self._jobs.values() for letter in of_job.letters()]

    @property
    def job_names(self) -> Mapping[str, str]:
        """The names of the jobs with letters, by id."""
        found = {job_id: of_job.description() for job_id, of_job in self._jobs.items()}
        return {job_id: "" if job is None else job.job_name for job_id, job in found.items()}

    def status(self, letter: StoredLetter) -> LetterStatus:
        """Return what has become of a letter."""
        if letter.obstacle is not None:
            return LetterStatus.LOST
        requested, replayed = self._states[letter.job_id]
        if letter.id in replayed:
            return LetterStatus.REPLAYED
        return LetterStatus.REQUESTED if letter.id in requested else LetterStatus.NEW

    def record(self, letter: StoredLetter, *types: type, state_key: bytes | None = None) -> object:
        """Return the exact record of a letter.

        Args:
            letter: The letter.
            types: The classes of the record and of the values in it.
            state_key: ``StateKey.value`` of the job, if its state is signed.

        Raises:
            ConfigurationError: The letter has no record.
            CorruptDataError: The record was changed, or has values of other classes.
        """
        if letter.payload is None:
            raise ConfigurationError(f"{letter}: {letter.obstacle}.")
        codec = Codec(TypeRegistry(types, (), ()), state_key)
        record: object
        record, _ = codec.unseal(BlobKind.LETTER, letter.payload, str(letter))
        return record

    def request_replay(self, letters: Iterable[StoredLetter]) -> None:
        """Request that letters are processed again at the next start of their job, each once.

        Args:
            letters: The letters, which are new.

        Raises:
            ConfigurationError: A letter is not new, or cannot be processed again. Nothing is requested.
        """
        chosen = list(letters)
        for letter in chosen:
            if (status := self.status(letter)) is not LetterStatus.NEW:
                reason = letter.obstacle if status is LetterStatus.LOST else f"it was {status.value} already"
                raise ConfigurationError(f"{letter} cannot be processed again: {reason}.")
        for job_id, of_job in self._jobs.items():
            if ids := [letter.id for letter in chosen if letter.job_id == job_id]:
                of_job.request(ids)
        self.__dict__.pop("_states", None)

    def withdraw_replays(self) -> int:
        """Withdraw all requests that are not done, and return the number of their letters."""
        withdrawn = 0
        for of_job in self._jobs.values():
            for request in of_job.requests():
                if not request.is_done:
                    of_job.withdraw(request.name)
                    withdrawn += len(request.letters)
        self.__dict__.pop("_states", None)
        return withdrawn

    @cached_property
    def _states(self) -> dict[str, tuple[set[str], LetterIds]]:
        """The letters that are requested, and those that are replayed, by job."""
        return {job_id: _states_of(of_job) for job_id, of_job in self._jobs.items()}


def _states_of(letters: JobLetters) -> tuple[set[str], LetterIds]:
    pending = [request for request in letters.requests() if not request.is_done]
    return {letter for request in pending for letter in request.letters}, letters.replayed()
