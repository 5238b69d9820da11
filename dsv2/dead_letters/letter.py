"""``StoredLetter``: a dead letter in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from dsv2.checks.json_documents import from_json, to_json
from dsv2.errors import CorruptDataError

_OF = "letters_of_batch"
_RESTORE = "Restore the file from a backup, or delete it if its letters are not needed."
_DIGEST = 6  # hexadecimal digits of an id that identify the content of a letter


@dataclass(frozen=True)
class StoredLetter:
    """A dead letter that was stored, because nothing in the job reads it.

    Attributes:
        id: Identifies the letter in its job: the micro-batch, its number there, and digits of its digest.
        job_id: The job, as sinks know it.
        batch_id: The micro-batch, as sinks count them.
        operator: The uid of the operator.
        subtask: The index of the subtask.
        parallelism: The parallelism of the operator.
        callback: The method that raised.
        input: The input that received the record; None if there is none.
        key: The key, shortened, or None.
        record: The record, shortened, or None.
        timestamp: The timestamp of the record in ms, or None.
        error_type: The class name of the exception.
        error_message: Its message.
        traceback: The user's frames in its traceback.
        location: The user's file and line that created the operator.
        time: The processing time of the micro-batch.
        position: Where the record is in its source (``RecordPosition``), if this is known.
        payload: The exact record and its timestamp, sealed like state; None if there is no record.
        obstacle: Why the record cannot be processed again, or None.
    """

    id: str
    job_id: str
    batch_id: int
    operator: str
    subtask: int
    parallelism: int
    callback: str
    input: int | None
    key: str | None
    record: str | None
    timestamp: int | None
    error_type: str
    error_message: str
    traceback: str
    location: str
    time: datetime
    position: Mapping[str, Any] | None
    payload: bytes | None
    obstacle: str | None

    def __str__(self) -> str:
        return f"Letter {self.id} of operator {self.operator!r}"


def encoded(letters: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode the letters of a micro-batch from ``LetterBox``: one in each line, with a checksum and their number."""
    return b"".join(to_json({**letter, _OF: len(letters)}) + b"\n" for letter in letters)


def parsed(data: bytes, job_id: str, batch_id: int, place: str) -> Iterator[StoredLetter]:
    """Decode the letters of a micro-batch.

    Args:
        data: The content of their file.
        job_id: The job.
        batch_id: The micro-batch.
        place: The file, for errors.

    Raises:
        CorruptDataError: The file is damaged.
    """
    lines = data.splitlines()
    for number, line in enumerate(lines):
        yield _parsed(line, job_id, batch_id, number, len(lines), place)
    if not lines:
        raise CorruptDataError(f"{place} is empty, but a file has at least one dead letter. {_RESTORE}")


def _parsed(line: bytes, job_id: str, batch_id: int, number: int, count: int, place: str) -> StoredLetter:
    try:
        entry = from_json(line)
        if entry.get(_OF, count) != count:
            raise ValueError(f"it is one of {entry[_OF]}, but the file has {count}")
        letter_id = f"{batch_id}.{number}.{sha256(line.rstrip()).hexdigest()[:_DIGEST]}"
        return msgspec.convert({**entry, "id": letter_id, "job_id": job_id, "batch_id": batch_id}, StoredLetter)
    except ValueError as error:
        raise CorruptDataError(f"{place}, line {number + 1}, is not a dead letter: {error}. {_RESTORE}") from error
