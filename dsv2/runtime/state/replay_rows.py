"""Rows of a savepoint that hold the records of dead letters, which a new subtask processes before anything else.

Each subtask receives all of them, and takes those that would be sent to it if they arrived now.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from dsv2.errors import CorruptDataError
from dsv2.graph import Operator
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.rows import RowKind, StateRow


class ReplayPlace(NamedTuple):
    """The place of a replayed record.

    Attributes:
        input: The input of the operator.
        order: Its place among all records that are processed again.
        parallelism: The parallelism of the operator when the record failed.
    """

    input: int
    order: int
    parallelism: int

    def row(self, subtask: int, payload: bytes) -> StateRow:
        """Return the row for a record that failed in ``subtask``. ``payload``: The encoded record and timestamp."""
        return StateRow(subtask, RowKind.REPLAY, "/".join(map(str, self)), None, payload)

    @staticmethod
    def of(row: StateRow, owner: str) -> ReplayPlace:
        """Return the place of a row of kind ``REPLAY``. Raises ``CorruptDataError``, naming ``owner``."""
        parts = (row.state or "").split("/")
        if len(parts) != len(ReplayPlace._fields) or not all(part.isascii() and part.isdigit() for part in parts):
            raise CorruptDataError(f"{owner}: a record that is to be processed again has no place, but {row.state!r}.")
        return ReplayPlace(*map(int, parts))


def replayed_record(row: StateRow, codec: Codec, owner: str) -> tuple[Any, int | None]:
    """Return the record and its timestamp in ms.

    Raises:
        CorruptDataError: They cannot be decoded; names ``owner``.
    """
    if row.value is None:
        raise CorruptDataError(f"{owner}: a row has no value.")
    pair = codec.loads(row.value, owner)
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise CorruptDataError(f"{owner}: {pair!r} is not a record with a timestamp.")
    return pair


def receiver_of(operator: Operator, row: StateRow, codec: Codec, owner: str) -> int:
    """Return the subtask of ``operator`` that processes the record of a row.

    Raises:
        CorruptDataError: The row cannot be decoded; names ``owner``.
    """
    select = operator.input_keys[ReplayPlace.of(row, owner).input]
    if select is not None and not operator.keys_stay:
        record, _ = replayed_record(row, codec, owner)
        with suppress(Exception):  # the selector fails again in the subtask, where the error policy applies
            return subtask_of(select(record), operator.max_parallelism, operator.parallelism)
    return row.subtask % operator.parallelism
