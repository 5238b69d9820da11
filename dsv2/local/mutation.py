"""Checks that no record is changed after it has been emitted.

On Spark such a change may or may not be seen downstream, depending on when the record is sent; here it is an error.
"""

from __future__ import annotations

from typing import Any

from dsv2.errors import RecordMutatedError, SerializationError
from dsv2.graph import Operator
from dsv2.runtime.codec import Codec
from dsv2.runtime.shortened import shorten

__all__ = ("MutationCheck",)


class MutationCheck:
    """Remembers every emitted record together with its bytes, until ``verify``."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._emitted: list[tuple[Operator, Any, bytes, str]] = []

    def remember(self, operator: Operator, record: Any) -> None:
        """Note what ``record``, which ``operator`` emits, is now."""
        try:
            data = self._codec.dumps(record)
        except SerializationError as error:
            raise SerializationError(
                f"{operator}, defined at {operator.location}, emitted {shorten(record)}. {error}"
            ) from error
        self._emitted.append((operator, record, data, shorten(record)))

    def verify(self) -> None:
        """Raise ``RecordMutatedError`` if a record is not what it was; then forget them all."""
        emitted, self._emitted[:] = self._emitted[:], []
        for operator, record, data, text in emitted:
            if self._codec.dumps(record) != data:
                raise RecordMutatedError(
                    f"A record was changed after {operator}, defined at {operator.location}, had emitted it: "
                    f"it was {text} and is now {shorten(record)}. Emit a copy, or build a new record."
                )
