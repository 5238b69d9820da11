"""Decides which new subtask needs a row of a savepoint."""

from __future__ import annotations

from collections.abc import Sequence

from dsv2.errors import CorruptDataError, IncompatibleCheckpointError
from dsv2.graph import Operator
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.rows import RowKind


class RowRouter:
    """Routes the rows of one operator to the subtasks of a new program.

    Args:
        operator: The operator in the new program.
        codec: Decodes keys.
    """

    def __init__(self, operator: Operator, codec: Codec) -> None:
        self._operator = operator
        self._codec = codec
        self._owner = f"Keyed state of {operator}, defined at {operator.location}"
        self._all = range(operator.parallelism)
        self._keys_stay = operator.keys_stay
        self._max_parallelism = operator.max_parallelism

    def subtasks_of(self, subtask: int, kind: str, key: bytes | None) -> Sequence[int]:
        """Return the subtasks that need a row: the owner of its key, or all if it has none.

        Args:
            subtask: The subtask that it comes from.
            kind: The kind of the row.
            key: The encoded key.

        Raises:
            IncompatibleCheckpointError: The row belongs to a subtask that does not exist any more.
            CorruptDataError: The key cannot be decoded.
        """
        if key is None:
            if RowKind(kind).has_key:
                raise CorruptDataError(f"{self._owner}: a row has no key.")
            return self._all
        if not self._keys_stay:
            found = self._codec.loads(key, self._owner)
            return (subtask_of(found, self._max_parallelism, len(self._all)),)
        if subtask not in self._all:
            raise IncompatibleCheckpointError(
                f"{self._operator}, defined at {self._operator.location}, runs on a stream without keys, and its "
                f"subtask {subtask} has open windows, which no other subtask can continue. Start it with "
                f"with_parallelism({subtask + 1}) or more until these windows have ended."
            )
        return (subtask,)
