"""Prepares the key columns that a function passes: distinct keys with hashes, checked to be those of the subtask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dsv2.arrow.encoding import Numbers
from dsv2.arrow.keyed.keys import OTHER, KeyArray, Keys, decoded_keys, distinct_keys, key_columns
from dsv2.errors import ContractError
from dsv2.runtime.serde.codec import Codec


@dataclass(frozen=True, slots=True)
class FoundKeys:
    """The distinct keys of a batch, and the place of each row's key among them."""

    keys: Keys
    places: Numbers


class KeyFinder:
    """Finds the keys of batches. The last ones are remembered, because a function uses them several times.

    Args:
        codec: Encodes keys that are neither numbers nor texts.
        subtask: The subtask.
        parallelism: The number of subtasks.
        max_parallelism: The number of key groups.
        keyed: Whether the stream is partitioned by key.
        names: The fields of the key; None if they are unknown.
        owner: Names the operator in error messages.
    """

    def __init__(
        self,
        codec: Codec,
        subtask: int,
        parallelism: int,
        max_parallelism: int,
        keyed: bool,
        names: Sequence[str] | None,
        owner: str,
    ) -> None:
        self._codec = codec
        self._subtask = subtask
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._keyed = keyed
        self._names = names
        self._owner = owner
        self._last: tuple[list[pa.Array], FoundKeys] | None = None
        self.batch: pa.Table | None = None
        """The records that are processed, to recognize their columns."""

    def find(self, keys: KeyArray) -> FoundKeys:
        """Return the distinct keys.

        Raises:
            InvalidKeyError: A key is null, or of a type that cannot be a key.
            ContractError: ``keys`` are not key columns or not those of the stream, or the stream is not keyed.
        """
        if not self._keyed:
            raise ContractError("State and timers of keys are only available on a keyed stream. Call key_by before.")
        columns = key_columns(keys)
        if self._last is not None and _are_same(columns, self._last[0]):
            return self._last[1]
        self._check_columns(columns)
        found = FoundKeys(*distinct_keys(columns, self._codec))
        self._check(found.keys)
        self._last = columns, found
        return found

    def forget(self) -> None:
        """Forget the last keys."""
        self._last = None

    def columns_of(self, keys: Keys, taken: Sequence[str]) -> tuple[list[str], list[pa.Array]]:
        """Return keys as columns with their names, which must differ from the names ``taken``."""
        columns = [keys.values]
        if keys.kind == OTHER:
            values = self.decoded(keys)
            parts = zip(*values, strict=True) if values and isinstance(values[0], tuple) else [values]
            columns = [pa.array(part) for part in parts]
        names = list(self._names or ())
        if len(names) != len(columns):
            names = ["key"] if len(columns) == 1 else [f"key_{number}" for number in range(1, len(columns) + 1)]
        return [f"key_{name}" if name in taken else name for name in names], columns

    def decoded(self, keys: Keys) -> list[Any]:
        """Return keys as Python values."""
        return decoded_keys(keys.kind, keys.values, self._codec, self._owner)

    def _check_columns(self, columns: Sequence[pa.Array]) -> None:
        """Refuse other columns of the batch, and columns that cannot be the keys. The subtask may have all keys."""
        names, batch = self._names, self.batch
        if names is None:
            return
        if len(columns) != len(names):
            raise self._other_columns(f"{len(columns)} instead of {len(names)} columns were")
        for column, name in zip(columns, names, strict=True):
            if batch is None or not len(column) or name not in batch.schema.names or _is_of(column, batch[name]):
                continue
            if column.type != batch.schema.field(name).type:
                raise self._other_columns(f"a column of {column.type} instead of {batch.schema.field(name).type} was")
            for other in batch.schema.names:
                if _is_of(column, batch[other]):
                    raise self._other_columns(f"the column {other!r} was")

    def _other_columns(self, what: str) -> ContractError:
        keys = ", ".join(map(repr, self._names or ()))
        return ContractError(
            f"{self._owner}: {what} passed as keys, but the stream is partitioned by {keys}. Pass these."
        )

    def _check(self, keys: Keys) -> None:
        if self._parallelism == 1:
            return
        groups = keys.hashes % np.uint32(self._max_parallelism)
        foreign = groups * np.uint32(self._parallelism) // np.uint32(self._max_parallelism) != self._subtask
        if foreign.any():
            (key, *_) = self.decoded(keys.take(np.flatnonzero(foreign)[:1]))
            raise ContractError(
                f"{self._owner}: the key {key!r:.80} belongs to another subtask. Pass the columns by which the "
                f"stream is partitioned (key_by), as they are."
            )


def _are_same(columns: Sequence[pa.Array], others: Sequence[pa.Array]) -> bool:
    return len(columns) == len(others) and all(map(_is_same, columns, others))


def _is_of(column: pa.Array, given: pa.ChunkedArray) -> bool:
    """Return True for an array that is a column of a table, as it is."""
    return given.num_chunks == 1 and _is_same(column, given.chunk(0))


def _is_same(column: pa.Array, other: pa.Array) -> bool:
    if column is other:
        return True
    if (len(column), column.offset, column.type) != (len(other), other.offset, other.type):
        return False
    return _places(column) == _places(other)


def _places(column: pa.Array) -> list[int | None]:
    return [None if buffer is None else buffer.address for buffer in column.buffers()]
