"""A check that records are not modified after they have been emitted.

On Spark, downstream operators may or may not see such a modification, depending on when the record is sent. Locally it
is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsv2.errors import RecordMutatedError, SerializationError
from dsv2.graph import Operator
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec

_ATOMS = frozenset({int, float, bool, str, bytes, type(None)})


@dataclass(frozen=True, slots=True)
class _Emitted:
    operator: Operator
    record: Any
    data: bytes
    text: str


class MutationCheck:
    """Keeps every emitted record with its serialized form until ``verify``."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._emitted: dict[int, _Emitted] = {}  # by the identity of the record
        self._latest: list[_Emitted] = []

    def remember(self, operator: Operator, record: Any) -> None:
        """Keep the current form of a record that ``operator`` emits.

        Raises:
            RecordMutatedError: The record was emitted before and has been modified since.
            SerializationError: The record cannot be serialized.
        """
        if _is_immutable(record):
            return
        before = self._emitted.get(id(record))
        if before is not None:
            self._compare(before)
            return
        try:
            data = self._codec.dumps(record)
        except SerializationError as error:
            raise SerializationError(
                f"{error} {operator}, defined at {operator.location}, emitted {shorten(record)}."
            ) from error
        emitted = _Emitted(operator, record, data, shorten(record))
        self._emitted[id(record)] = emitted
        self._latest.append(emitted)

    def verify_latest(self) -> None:
        """Raise ``RecordMutatedError`` if a record emitted since the last call has been modified."""
        latest, self._latest = self._latest, []
        for emitted in latest:
            self._compare(emitted)

    def verify(self) -> None:
        """Raise ``RecordMutatedError`` if any record has been modified. Discards all records."""
        records, self._emitted, self._latest = self._emitted, {}, []
        for emitted in records.values():
            self._compare(emitted)

    def _compare(self, emitted: _Emitted) -> None:
        if self._codec.dumps(emitted.record) != emitted.data:
            raise RecordMutatedError(
                f"A record was modified after {emitted.operator}, defined at {emitted.operator.location}, emitted it: "
                f"it was {emitted.text} and is now {shorten(emitted.record)}. Emit a copy, or create a new record."
            )


def _is_immutable(record: Any) -> bool:
    kind = type(record)
    if kind in _ATOMS:
        return True
    return isinstance(record, tuple) and not kind.__dictoffset__ and _ATOMS.issuperset(map(type, record))
