"""Records the micro-batch that last wrote the state of each subtask, in the state itself and in the checkpoint.

Spark finds state by a version number, and accepts whatever is stored there. The state of a slot therefore records its
checkpoint and the micro-batch that wrote it. A run compares both with the checkpoint, and rejects state that is older
or newer than the offsets, or belongs to another job.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from typing import Protocol, TypeAlias
from uuid import UUID
from zlib import crc32

from dsv2.base.folders import Folder
from dsv2.checks.json_documents import read_document, write_document
from dsv2.errors import CorruptDataError
from dsv2.graph import Plan
from dsv2.runtime.serde.codec import SIGNED_HEADER_BYTES

SUBTASK = "subtask"
PAGES = "pages"
"""Spark's state variables of ``StateLayout.MAP``: the blob of a subtask, and the map of its pages and its journal."""
JOURNAL = "micro-batches"
"""The name of the journal in the map. No pages have this name."""
JOURNAL_LENGTH = 32
_HEADER = struct.Struct("<4s16sqHI")
_MAGIC, _MAGIC_SIGNED = b"DS2S", b"DS2K"
_SIGNATURE_BYTES = 32
_STATES = "dsv2/states"

Place: TypeAlias = tuple[str, int]
"""A subtask: the uid of the operator at the head of its chain, and its index."""
_REMEDY = "It records in which micro-batch the state of each subtask was last written. Restore it from a backup."

Written: TypeAlias = dict[Place, int | None]
"""The micro-batch that last wrote the state of each subtask. None: there is no state yet."""


@dataclass(frozen=True)
class _HistoryFile:
    """A file: the micro-batch that last wrote the state of each subtask, by uid."""

    written: Mapping[str, Sequence[int | None]]


class StateLedger:
    """Records on the driver which micro-batch last wrote the state of each subtask.

    A micro-batch in which every subtask had work needs no entry. For any other, a file is written before Spark commits
    the micro-batch.

    Args:
        checkpoint: The checkpoint.
        plan: The plan of the job.
        first_batch: The micro-batch that the run begins with.
        retained: The number of micro-batches whose state Spark retains.

    Raises:
        CorruptDataError: The last entry is damaged.
    """

    def __init__(self, checkpoint: Folder, plan: Plan, first_batch: int, retained: int) -> None:
        self._checkpoint = checkpoint
        self._retained = retained
        heads = [plan.operators[head] for head in plan.chains]
        self._places = [(head.uid, subtask) for head in heads for subtask in range(head.parallelism)]
        self._entries = set(checkpoint.numbers(_STATES, suffix=".json"))
        self._written = written_as_of(checkpoint, self._places, first_batch - 1)

    @property
    def written(self) -> Written:
        """The record as of the last micro-batch."""
        return self._written

    def add(self, batch_id: int, called: Collection[Place]) -> None:
        """Record that exactly the subtasks ``called`` have written their state in ``batch_id``."""
        self._written = self._written | {place: batch_id for place in self._places if place in called}
        if all(written == batch_id for written in self._written.values()):
            if batch_id in self._entries:  # from an earlier attempt
                self._delete(batch_id)
            return
        by_uid: dict[str, list[int | None]] = {}
        for uid, subtask in self._places:
            by_uid.setdefault(uid, []).append(self._written[uid, subtask])
        write_document(self._checkpoint, _name(batch_id), _HistoryFile(by_uid))
        self._entries.add(batch_id)
        for old in [entry for entry in self._entries if entry < batch_id - self._retained]:
            self._delete(old)

    def _delete(self, batch_id: int) -> None:
        self._checkpoint.delete(_name(batch_id))
        self._entries.discard(batch_id)


def written_as_of(checkpoint: Folder, places: Iterable[Place], batch_id: int) -> Written:
    """Return which micro-batch last wrote the state of each of ``places``, after the micro-batch ``batch_id``.

    Raises:
        CorruptDataError: The entry is damaged.
    """
    if batch_id < 0:
        return dict.fromkeys(places)
    entry = read_document(checkpoint, _name(batch_id), _HistoryFile, _REMEDY)
    if entry is None:
        return dict.fromkeys(places, batch_id)
    try:
        return {(uid, subtask): entry.written[uid][subtask] for uid, subtask in places}
    except LookupError as error:
        place = checkpoint.place(_name(batch_id))
        raise CorruptDataError(f"{place} is damaged: it has no entry for {error}. {_REMEDY}") from error


def _name(batch_id: int) -> str:
    return f"{_STATES}/{batch_id}.json"


@dataclass(frozen=True)
class StateHistory:
    """Describes for the tasks of a run the state that the run begins with.

    Attributes:
        checkpoint: The id of the checkpoint.
        first_batch: The micro-batch that the run begins with.
        written: The micro-batch that last wrote the state of each subtask.
    """

    checkpoint: UUID
    first_batch: int
    written: Mapping[Place, int | None]


class Journal(Protocol):
    """The last micro-batches that wrote state with many entries, which are stored separately.

    A store that has lost a micro-batch has also lost its place in the journal.
    """

    def get(self, place: int) -> int | None:
        """Return the micro-batch at ``place``, which is below ``JOURNAL_LENGTH``."""

    def put(self, place: int, batch_id: int) -> None:
        """Set the micro-batch at ``place``."""


class StateSeal:
    """Adds and checks the header of the state of one subtask, in one micro-batch.

    Args:
        history: The state that the run begins with. None in a query that dsv2 did not start: the header is then
            written, but not compared.
        place: The subtask.
        owner: The subtask, for errors.
        batch_id: The micro-batch.
        journal: The journal of the state. None: the state has no separate entries.
        key: Signs the header, together with the subtask and the signature in the state. None (default): not signed.
    """

    def __init__(
        self,
        history: StateHistory | None,
        place: Place,
        owner: str,
        batch_id: int,
        journal: Journal | None,
        key: bytes | None = None,
    ) -> None:
        self._history = history
        self._place = place
        self._owner = f"State of {owner}"
        self._batch_id = batch_id
        self._journal = journal
        self._key = key
        self._before: tuple[int, ...] = ()

    def open(self, sealed: bytes | bytearray | None) -> memoryview | None:
        """Return the state in ``sealed``, the stored value. Raises ``CorruptDataError`` if it is not as expected."""
        if sealed is None:
            self._compare(None)
            return None
        header = bytes(sealed[: _HEADER.size])
        if len(header) < _HEADER.size:
            raise CorruptDataError(f"{self._owner}: {len(sealed)} bytes are too few.")
        magic, checkpoint, written, count, checksum = _HEADER.unpack(header)
        numbers = struct.Struct(f"<{count}q")
        end = _HEADER.size + numbers.size
        if magic not in (_MAGIC, _MAGIC_SIGNED):
            raise CorruptDataError(f"{self._owner}: these bytes are not state of dsv2.")
        if len(sealed) < end or crc32(sealed[_HEADER.size : end], crc32(header[:-4])) != checksum:
            raise CorruptDataError(f"{self._owner}: the bytes are damaged (the checksum of the header does not match).")
        if self._key is not None or magic == _MAGIC_SIGNED:
            around, end = bytes(sealed[:end]), end + _SIGNATURE_BYTES
            state = sealed[end : end + SIGNED_HEADER_BYTES]
            self._check_signature(magic == _MAGIC_SIGNED, around, bytes(sealed[len(around) : end]), state)
        if self._history is not None and checkpoint != self._history.checkpoint.bytes:
            raise CorruptDataError(
                f"{self._owner} belongs to another checkpoint: its checkpoint is {UUID(bytes=checkpoint)}, and this "
                f"one is {self._history.checkpoint}. {_RESTORE}"
            )
        self._before = numbers.unpack_from(sealed, _HEADER.size)
        self._compare(written)
        return memoryview(sealed)[end:]

    def close(self, state: bytearray) -> bytearray:
        """Put the header before ``state``, which is not copied, and return it for the slot to store."""
        journal: tuple[int, ...] = ()
        if self._journal is not None:
            journal = (*self._before, self._batch_id)[-JOURNAL_LENGTH:]
            self._journal.put(self._batch_id % JOURNAL_LENGTH, self._batch_id)
        numbers = struct.pack(f"<{len(journal)}q", *journal)
        checkpoint = self._history.checkpoint.bytes if self._history is not None else bytes(16)
        magic = _MAGIC if self._key is None else _MAGIC_SIGNED
        header = _HEADER.pack(magic, checkpoint, self._batch_id, len(journal), 0)[:-4]
        around = header + struct.pack("<I", crc32(numbers, crc32(header))) + numbers
        if self._key is not None:
            around += self._signature(self._key, around, state)
        state[:0] = around
        return state

    def _check_signature(self, is_signed: bool, around: bytes, signature: bytes, state: bytes | bytearray) -> None:
        if self._key is None or not is_signed:
            has = "is signed, but the job has no key" if is_signed else "is not signed, but the job has a key"
            raise CorruptDataError(f"{self._owner} {has}. Use the state_key of the first start from the checkpoint.")
        if not compare_digest(signature, self._signature(self._key, around, state)):
            raise CorruptDataError(
                f"{self._owner}: the signature does not match. The state was changed, was written with another key, or "
                f"belongs to another subtask."
            )

    def _signature(self, key: bytes, around: bytes, state: bytes | bytearray) -> bytes:
        digest = blake2b(repr(self._place).encode(), key=key, digest_size=_SIGNATURE_BYTES)
        digest.update(around)
        digest.update(state[:SIGNED_HEADER_BYTES])
        return digest.digest()

    def _compare(self, written: int | None) -> None:
        history = self._history
        if history is None:
            return
        if written is not None and written >= self._batch_id:
            raise CorruptDataError(
                f"{self._owner} is newer than the offsets: micro-batch {written} wrote it, but micro-batch "
                f"{self._batch_id} is about to run. {_RESTORE}"
            )
        if written is not None and written >= history.first_batch:
            return  # written by this run
        expected = history.written.get(self._place)
        if written != expected:
            raise CorruptDataError(
                f"{self._owner} {_describe(written)}, but micro-batch {history.first_batch} of the checkpoint "
                f"continues from state that {_describe(expected)}. {_RESTORE}"
            )
        self._check_journal()

    def _check_journal(self) -> None:
        if self._journal is None:
            return
        for batch_id in self._before:
            if any(later % JOURNAL_LENGTH == batch_id % JOURNAL_LENGTH for later in self._before if later > batch_id):
                continue
            if (found := self._journal.get(batch_id % JOURNAL_LENGTH)) != batch_id:
                raise CorruptDataError(
                    f"{self._owner} is incomplete: the entries that micro-batch {batch_id} wrote to the state store "
                    f"are missing (micro-batch {found} is in their place). {_RESTORE}"
                )


_RESTORE = (
    "Files of the checkpoint have been replaced. Restore the whole checkpoint from a backup (offsets, commits, state "
    "and dsv2 together), or start from a new checkpoint_location."
)


def _describe(written: int | None) -> str:
    return "was never written" if written is None else f"was last written in micro-batch {written}"
