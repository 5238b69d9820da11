"""Checks that no record is changed after it has been emitted.

On Spark such a change may or may not be seen downstream, depending on when the record is sent; here it is an error.
"""

from __future__ import annotations

from typing import Any

from dsv2.errors import RecordMutatedError
from dsv2.graph import Operator
from dsv2.runtime.codec import Codec
from dsv2.runtime.failure import shorten
from dsv2.runtime.outputs import Collect

__all__ = ("MutationCheck",)


class MutationCheck:
    """Remembers every emitted record together with its bytes, until ``verify``."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._emitted: list[tuple[Operator, Any, bytes, str]] = []

    def wrap(self, operator: Operator, collect: Collect) -> Collect:
        """``collect`` of one output of ``operator``, watched."""
        emitted, dumps = self._emitted, self._codec.dumps

        def remember(record: Any) -> None:
            emitted.append((operator, record, dumps(record), shorten(record)))
            collect(record)

        return remember

    def verify(self) -> None:
        """Raise ``RecordMutatedError`` if a record is not what it was; then forget them all."""
        emitted, self._emitted[:] = self._emitted[:], []
        for operator, record, data, text in emitted:
            if self._codec.dumps(record) != data:
                raise RecordMutatedError(
                    f"A record was changed after {operator}, defined at {operator.location}, had emitted it: "
                    f"it was {text} and is now {shorten(record)}. Emit a copy, or build a new record."
                )
