"""Which micro-batch the state of each subtask was last written in: in the state itself, and in the checkpoint.

Spark finds state by the number of a version, and takes whatever lies there. So what a slot keeps says of which
checkpoint it is and which micro-batch has written it, and a run compares that with what the checkpoint says: state that
is older or newer than the offsets, or that is another job's, is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from typing import Protocol, TypeAlias
from uuid import UUID
from zlib import crc32

from dsv2.errors import CorruptDataError
from dsv2.graph import Plan
from dsv2.runtime.serde.codec import SIGNED_HEADER_BYTES
from runtime_spark.checked_json import from_json, to_json
from runtime_spark.folders import Folder

__all__ = ("JOURNAL_LENGTH", "Journal", "StateHistory", "StateLedger", "StateSeal", "Written")

JOURNAL_LENGTH = 32
_HEADER = struct.Struct("<4s16sqHI")
_MAGIC, _MAGIC_SIGNED = b"DS2S", b"DS2K"
_SIGNATURE_BYTES = 32
_STATES = "dsv2/states"

Place: TypeAlias = tuple[str, int]
"""A subtask: the uid of the operator at the head of its chain, and its number."""
Written: TypeAlias = dict[Place, int | None]
"""The micro-batch that was the last one to write the state of each subtask; None: there is no state yet."""


class StateLedger:
    """The driver's book: which micro-batch was the last one to write the state of each subtask.

    A micro-batch in which each subtask had anything to do needs no entry. One in which some had nothing to do gets a
    file, before Spark commits it. ``retained``: of how many micro-batches Spark keeps the state.
    """

    def __init__(self, checkpoint: Folder, plan: Plan, first_batch: int, retained: int) -> None:
        """``first_batch``: the one with which the run begins. Raises ``CorruptDataError``."""
        self._checkpoint = checkpoint
        self._retained = retained
        heads = [plan.operators[head] for head in plan.chains]
        self._places = [(head.uid, subtask) for head in heads for subtask in range(head.parallelism)]
        self._entries = set(checkpoint.numbers(_STATES, suffix=".json"))
        self._written = self._read(first_batch - 1)

    @property
    def written(self) -> Written:
        """As of the last micro-batch."""
        return self._written

    def add(self, batch_id: int, called: Collection[Place]) -> None:
        """In ``batch_id`` the subtasks ``called`` have written their state, and no others."""
        self._written = self._written | {place: batch_id for place in self._places if place in called}
        if all(written == batch_id for written in self._written.values()):
            if batch_id in self._entries:  # of an attempt before
                self._delete(batch_id)
            return
        by_uid: dict[str, list[int | None]] = {}
        for uid, subtask in self._places:
            by_uid.setdefault(uid, []).append(self._written[uid, subtask])
        self._checkpoint.write(_name(batch_id), to_json({"written": by_uid}))
        self._entries.add(batch_id)
        for old in [entry for entry in self._entries if entry < batch_id - self._retained]:
            self._delete(old)

    def _delete(self, batch_id: int) -> None:
        self._checkpoint.delete(_name(batch_id))
        self._entries.discard(batch_id)

    def _read(self, batch_id: int) -> Written:
        if batch_id < 0:
            return dict.fromkeys(self._places)
        if batch_id not in self._entries:
            return dict.fromkeys(self._places, batch_id)
        try:
            by_uid = from_json(self._checkpoint.read(_name(batch_id)))["written"]
            return {(uid, subtask): _number(by_uid[uid][subtask]) for uid, subtask in self._places}
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(
                f"{self._checkpoint.place(_name(batch_id))} is damaged: {error!r}. It says in which micro-batch the "
                f"state of each subtask was last written. Put it back from a backup."
            ) from error


def _name(batch_id: int) -> str:
    return f"{_STATES}/{batch_id}.json"


def _number(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{value!r} is not the number of a micro-batch")


@dataclass(frozen=True)
class StateHistory:
    """What a run expects of the state that it begins with, for its tasks.

    ``checkpoint``: its id. ``first_batch``: the one with which the run begins.
    """

    checkpoint: UUID
    first_batch: int
    written: Mapping[Place, int | None]


class Journal(Protocol):
    """The last micro-batches that wrote state which consists of many entries, each of which lies in the store alone.

    A store that has lost a micro-batch has lost its place in the journal, too.
    """

    def get(self, place: int) -> int | None:
        """The micro-batch at ``place``, below ``JOURNAL_LENGTH``."""

    def put(self, place: int, batch_id: int) -> None:
        """Set it."""


class StateSeal:
    """What stands around the state of one subtask, in one micro-batch of one slot."""

    def __init__(
        self,
        history: StateHistory | None,
        place: Place,
        owner: str,
        batch_id: int,
        journal: Journal | None,
        key: bytes | None = None,
    ) -> None:
        """``history``: None in a query that dsv2 did not start, where only the micro-batch is written down.

        ``owner``: the subtask, for errors. ``key``: signs what is around the state, together with the subtask and the
        signature that the state has of its own.
        """
        self._history = history
        self._place = place
        self._owner = f"State of {owner}"
        self._batch_id = batch_id
        self._journal = journal
        self._key = key
        self._before: tuple[int, ...] = ()

    def open(self, sealed: bytes | None) -> bytes | None:
        """The state in ``sealed``, which the slot has kept. Raises ``CorruptDataError`` if it is not the right one."""
        if sealed is None:
            self._compare(None)
            return None
        header = sealed[: _HEADER.size]
        if len(header) < _HEADER.size:
            raise CorruptDataError(f"{self._owner}: {len(sealed)} bytes are too few.")
        magic, checkpoint, written, count, checksum = _HEADER.unpack(header)
        numbers = struct.Struct(f"<{count}q")
        end = _HEADER.size + numbers.size
        if magic not in (_MAGIC, _MAGIC_SIGNED):
            raise CorruptDataError(f"{self._owner}: these bytes are not state of dsv2.")
        if len(sealed) < end or crc32(sealed[_HEADER.size : end], crc32(header[:-4])) != checksum:
            raise CorruptDataError(f"{self._owner}: the bytes are damaged (the checksum of the header does not fit).")
        if self._key is not None or magic == _MAGIC_SIGNED:
            around, end = sealed[:end], end + _SIGNATURE_BYTES
            self._check_signature(magic == _MAGIC_SIGNED, around, sealed[len(around) : end], sealed[end:])
        if self._history is not None and checkpoint != self._history.checkpoint.bytes:
            raise CorruptDataError(
                f"{self._owner} is of another checkpoint: it is that of {UUID(bytes=checkpoint)}, and this one is "
                f"{self._history.checkpoint}. {_RESTORE}"
            )
        self._before = numbers.unpack_from(sealed, _HEADER.size)
        self._compare(written)
        return sealed[end:]

    def close(self, state: bytes) -> bytes:
        """``state`` for the slot to keep."""
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
        return around + state

    def _check_signature(self, is_signed: bool, around: bytes, signature: bytes, state: bytes) -> None:
        if self._key is None or not is_signed:
            has = "is signed, and the job has no key for it" if is_signed else "is not signed, and the job has a key"
            raise CorruptDataError(f"{self._owner} {has}. Start with the state_key that the checkpoint was begun with.")
        if not compare_digest(signature, self._signature(self._key, around, state)):
            raise CorruptDataError(
                f"{self._owner}: the signature does not fit. It was changed, or written with another key, or it is of "
                f"another subtask."
            )

    def _signature(self, key: bytes, around: bytes, state: bytes) -> bytes:
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
                f"{self._owner} is newer than the offsets: micro-batch {written} has written it, and micro-batch "
                f"{self._batch_id} is about to run. {_RESTORE}"
            )
        if written is not None and written >= history.first_batch:
            return  # this run's own
        expected = history.written.get(self._place)
        if written != expected:
            raise CorruptDataError(
                f"{self._owner} {_said(written)}, but micro-batch {history.first_batch} of the checkpoint goes on from "
                f"state that {_said(expected)}. {_RESTORE}"
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
                    f"{self._owner} is not whole: what micro-batch {batch_id} has written to the state store is not "
                    f"there (in its place is micro-batch {found}). {_RESTORE}"
                )


_RESTORE = (
    "Files of the checkpoint have been replaced. Put back a backup of all of it (offsets, commits, state and dsv2 "
    "together), or start from a new checkpoint_location."
)


def _said(written: int | None) -> str:
    return "was never written" if written is None else f"was last written in micro-batch {written}"
