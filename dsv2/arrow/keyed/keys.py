"""The keys of a batch: distinct, with their stable hashes.

Keys are stored as whole numbers, as texts, or, if they are anything else, as the encoded key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.hashing import hash_tuples, hash_values, hash_whole_numbers
from dsv2.errors import ContractError, InvalidKeyError
from dsv2.runtime.serde.codec import Codec, tuple_header
from dsv2.runtime.state.key_groups import stable_hash


@dataclass(frozen=True, slots=True)
class FoundKeys:
    """The distinct keys of a batch, and the place of each row's key among them."""

    keys: Keys
    places: Numbers

    def last_rows(self) -> pa.Int64Array:
        """The last row of each key."""
        last = np.zeros(len(self.keys), np.int64)
        last[self.places] = np.arange(len(self.places))  # numpy assigns the last one of a repeated place
        return pa.array(last)


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


NUMBER: Final = "number"
TEXT: Final = "text"
OTHER: Final = "other"

KeyArray = Any
"""A key column: an Arrow array or chunked array, or a numpy array."""

_STORED = {NUMBER: pa.int64(), TEXT: pa.string(), OTHER: pa.binary()}


@dataclass(frozen=True, slots=True)
class Keys:
    """Distinct keys.

    Attributes:
        kind: ``NUMBER``, ``TEXT`` or ``OTHER``.
        values: The keys as they are stored, without nulls.
        hashes: The stable hash of each, in 32 bits.
    """

    kind: str
    values: pa.Array
    hashes: Numbers

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, places: Numbers) -> Keys:
        """Return the keys at ``places``."""
        return Keys(self.kind, self.values.take(pa.array(places)), self.hashes[places])

    @staticmethod
    def stored(kind: str, values: pa.Array, hashes: Numbers | None = None) -> Keys:
        """Return keys as they are stored. ``hashes``: They are stored for all kinds but numbers."""
        return Keys(kind, values, hash_whole_numbers(values.to_numpy()) if hashes is None else hashes)


def key_columns(keys: object) -> list[pa.Array]:
    """Return the key columns that the user passed: one array, or a list or tuple with one for each part of the key.

    Raises:
        ContractError: They are something else, or differ in length.
    """
    given = list(keys) if isinstance(keys, list | tuple) else [keys]
    columns = [_normalized(column) for column in given]
    if not columns or len(set(map(len, columns))) != 1:
        raise ContractError("Keys are an array, or a list of arrays of the same length for keys of several parts.")
    return columns


def distinct_keys(columns: Sequence[pa.Array], codec: Codec) -> tuple[Keys, Numbers]:
    """Return the distinct keys, in the order of their first occurrence.

    Args:
        columns: Those of ``key_columns``.
        codec: Encodes keys that are neither numbers nor texts.

    Returns:
        The keys, and the place of each row's key among them.

    Raises:
        InvalidKeyError: A key is null, or of a type that cannot be a key.
    """
    if len(columns) > 1:
        return _distinct_tuples(columns, codec)
    (column,) = columns
    if column.null_count:
        raise InvalidKeyError("The assigned key must not be None.")
    coded = pc.dictionary_encode(column)
    values, places = coded.dictionary, coded.indices.to_numpy()
    if pa.types.is_int64(column.type):
        return Keys(NUMBER, values, hash_values(values)), places
    if pa.types.is_string(column.type):
        return Keys(TEXT, values, hash_values(values)), places
    return encoded_keys(values.to_pylist(), codec), places


def _distinct_tuples(columns: Sequence[pa.Array], codec: Codec) -> tuple[Keys, Numbers]:
    """Keys of several parts. Only the distinct values of each part are Python objects."""
    coded = [pc.dictionary_encode(column, null_encoding="encode") for column in columns]
    places = coded[0].indices.to_numpy()
    for column in coded[1:]:
        rows = places.astype(np.int64) * len(column.dictionary) + column.indices.to_numpy()
        places = pc.dictionary_encode(pa.array(rows)).indices.to_numpy()
    firsts = np.empty(places.max(initial=-1) + 1, np.int64)
    firsts[places[::-1]] = np.arange(len(places))[::-1]  # the first row of each key is assigned last
    indices = [column.indices.take(pa.array(firsts)) for column in coded]
    hashes = hash_tuples([
        hash_values(column.dictionary)[at.to_numpy()] for column, at in zip(coded, indices, strict=True)
    ])  # fmt: skip
    encoded = [
        pa.array(list(map(codec.dumps, map(_canonical, column.dictionary.to_pylist()))), pa.binary()).take(at)
        for column, at in zip(coded, indices, strict=True)
    ]
    header, nothing = pa.scalar(tuple_header(len(columns)), pa.binary()), pa.scalar(b"", pa.binary())
    return Keys(OTHER, pc.binary_join_element_wise(header, *encoded, nothing), hashes), places


def encoded_keys(keys: Iterable[Any], codec: Codec) -> Keys:
    """Return distinct keys that are Python values."""
    values = [_canonical(key) for key in keys]
    kinds = set(map(type, values))
    hashes = np.fromiter(map(stable_hash, values), np.uint32, len(values))
    if kinds == {int}:
        try:
            return Keys(NUMBER, pa.array(values, pa.int64()), hashes)
        except (OverflowError, pa.ArrowInvalid):
            pass  # more than 64 bits
    if kinds == {str}:
        return Keys(TEXT, pa.array(values, pa.string()), hashes)
    return Keys(OTHER, pa.array(map(codec.dumps, values), pa.binary()), hashes)


def decoded_keys(kind: str, values: pa.Array, codec: Codec, owner: str) -> list[Any]:
    """Return stored keys as Python values."""
    if kind == OTHER:
        return [codec.loads(key, owner) for key in values.to_pylist()]
    found: list[Any] = values.to_pylist()
    return found


def stored_type(kind: str) -> pa.DataType:
    """Return the type of the column of stored keys."""
    return _STORED[kind]


def _normalized(column: Any) -> pa.Array:
    if isinstance(column, np.ndarray):
        column = pa.array(column.copy())  # the caller may change it before the next call with it
    elif isinstance(column, pa.ChunkedArray):
        column = in_one_piece(column)
    if not isinstance(column, pa.Array):
        raise ContractError(f"Keys are Arrow arrays or numpy arrays, not {type(column).__qualname__}.")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_floating(column.type):
        return pc.add(column, pa.scalar(0.0, column.type))  # -0.0 is equal to 0.0
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column


def _canonical(key: Any) -> Any:
    """The form of a key in which equal keys have equal bytes."""
    if isinstance(key, tuple):
        return tuple(map(_canonical, key))
    if isinstance(key, float):
        return key + 0.0  # -0.0 is equal to 0.0
    if isinstance(key, Decimal):
        return key.normalize() + 0
    if isinstance(key, bool):
        return key
    if isinstance(key, int):
        return int(key)
    return str(key) if isinstance(key, str) else key
