"""Checks that no record is changed after it has been emitted.

On Spark such a change may or may not be seen downstream, depending on when the record is sent; here it is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsv2.errors import RecordMutatedError, SerializationError
from dsv2.graph import Operator
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec

__all__ = ("MutationCheck",)

_ATOMS = frozenset({int, float, bool, str, bytes, type(None)})


@dataclass(frozen=True, slots=True)
class _Emitted:
    operator: Operator
    record: Any
    data: bytes
    text: str


class MutationCheck:
    """Remembers every emitted record together with its bytes, until ``verify``."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._emitted: dict[int, _Emitted] = {}  # by the identity of the record
        self._latest: list[_Emitted] = []

    def remember(self, operator: Operator, record: Any) -> None:
        """Note what ``record``, which ``operator`` emits, is now.

        Raises ``RecordMutatedError`` if it was emitted before and was another then, ``SerializationError`` if it cannot
        be turned into bytes.
        """
        if _cannot_change(record):
            return
        before = self._emitted.get(id(record))
        if before is not None:
            self._compare(before)
            return
        try:
            data = self._codec.dumps(record)
        except SerializationError as error:
            raise SerializationError(
                f"{operator}, defined at {operator.location}, emitted {shorten(record)}. {error}"
            ) from error
        emitted = _Emitted(operator, record, data, shorten(record))
        self._emitted[id(record)] = emitted
        self._latest.append(emitted)

    def verify_latest(self) -> None:
        """Raise ``RecordMutatedError`` if one of the records emitted since the last call is not what it was."""
        latest, self._latest = self._latest, []
        for emitted in latest:
            self._compare(emitted)

    def verify(self) -> None:
        """Raise ``RecordMutatedError`` if a record is not what it was; then forget them all."""
        everything, self._emitted, self._latest = self._emitted, {}, []
        for emitted in everything.values():
            self._compare(emitted)

    def _compare(self, emitted: _Emitted) -> None:
        if self._codec.dumps(emitted.record) != emitted.data:
            raise RecordMutatedError(
                f"A record was changed after {emitted.operator}, defined at {emitted.operator.location}, had emitted "
                f"it: it was {emitted.text} and is now {shorten(emitted.record)}. Emit a copy, or build a new record."
            )


def _cannot_change(record: Any) -> bool:
    kind = type(record)
    if kind in _ATOMS:
        return True
    return isinstance(record, tuple) and not kind.__dictoffset__ and _ATOMS.issuperset(map(type, record))
