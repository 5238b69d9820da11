"""Assigns columnar keys to subtasks, with the same result as for single keys."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.encoding import Numbers
from dsv2.runtime.state.key_groups import stable_hash, subtask_of

_MODULUS = np.int64((1 << 61) - 1)  # the modulus of Python's numeric hash (sys.hash_info)
_MULTIPLIER = 0x9E3779B97F4A7C15
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_BYTE = np.uint32(8)
_FACTOR_LOW, _FACTOR_HIGH = np.uint64(_MULTIPLIER & 0xFFFFFFFF), np.uint64(_MULTIPLIER >> 32)


def _crc_table() -> Numbers:
    """The remainders of CRC-32 (that of zlib) for each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> np.uint32(1) ^ np.where(table & np.uint32(1), np.uint32(0xEDB88320), np.uint32(0))
    return table


_CRC_TABLE = _crc_table()


def subtasks_of(columns: Sequence[pa.Array], max_parallelism: int, parallelism: int) -> Numbers:
    """Return the subtask of each row's key. 16 bits are enough, because key groups have 15.

    Args:
        columns: One column with the keys, or several whose values form a tuple.
        max_parallelism: The number of key groups.
        parallelism: The number of subtasks.

    Raises:
        InvalidKeyError: As in ``subtask_of``.
    """
    if len(columns) == 1 and columns[0].null_count:
        subtask_of(None, max_parallelism, parallelism)  # raises
    hashes = [_hashes_of_rows(column) for column in columns]
    return _subtasks(hashes[0] if len(columns) == 1 else hash_tuples(hashes), max_parallelism, parallelism)


def _subtasks(hashes: Numbers, max_parallelism: int, parallelism: int) -> Numbers:
    groups = _remainders(hashes, max_parallelism)
    return (groups * np.uint32(parallelism) // np.uint32(max_parallelism)).astype(np.uint16)


def _remainders(hashes: Numbers, divisor: int) -> Numbers:
    # numpy vectorizes the division but not the % operator.
    remainders: Numbers = hashes - hashes // np.uint32(divisor) * np.uint32(divisor)
    return remainders


def _hashes_of_rows(column: pa.Array) -> Numbers:
    if pa.types.is_int64(column.type) and not column.null_count:
        return hash_whole_numbers(column.to_numpy())
    coded = pc.dictionary_encode(column, null_encoding="encode")
    hashes: Numbers = hash_values(coded.dictionary)[coded.indices.to_numpy()]
    return hashes


def hash_values(values: pa.Array) -> Numbers:
    """``stable_hash`` of each value, which may be null."""
    if not values.null_count and pa.types.is_int64(values.type):
        return hash_whole_numbers(values.to_numpy())
    if not values.null_count and pa.types.is_string(values.type):
        return hash_texts(values)
    return np.fromiter(map(stable_hash, values.to_pylist()), np.uint32, len(values))


def hash_tuples(parts: Sequence[Numbers]) -> Numbers:
    """``stable_hash`` of tuples.

    Args:
        parts: The hashes of the first values of all tuples, of the second ones, and so on.
    """
    checksums = np.full(len(parts[0]), _LOW, np.uint32)
    for hashes in parts:
        for shift in (0, 8, 16, 24):
            checksums = _CRC_TABLE[(checksums ^ hashes >> np.uint32(shift)) & np.uint32(0xFF)] ^ checksums >> _BYTE
    return hash_whole_numbers((~checksums).astype(np.int64) + len(parts))


def hash_texts(values: pa.StringArray) -> Numbers:
    """``stable_hash`` of each string. Arrow stores strings as UTF-8."""
    encoded = values.cast(pa.binary()).to_pylist()
    return _hash_small_numbers(np.fromiter(map(crc32, encoded), np.uint64, len(encoded)))


def hash_whole_numbers(values: Numbers) -> Numbers:
    """``stable_hash`` of each integer: bits 32 to 63 of value times multiplier, XOR the bits above."""
    least, greatest = (values.min(), values.max()) if len(values) else (0, 0)
    if least >= 0 and greatest <= _LOW:
        return _hash_small_numbers(values.view(np.uint64))
    hashes = values
    if least <= -_MODULUS or greatest >= _MODULUS:
        hashes = np.fmod(values, _MODULUS)  # fmod keeps the sign of the value, like Python's hash
    hashes = np.where(hashes == -1, -2, hashes)
    low, high = _product(hashes.astype(np.uint64))
    high = np.where(hashes < 0, high - np.uint64(_MULTIPLIER), high)
    return (low >> _HALF ^ high).astype(np.uint32)


def _hash_small_numbers(values: Numbers) -> Numbers:
    """The same for 32-bit numbers, about four times as fast, because the lowest 32 bits are not computed."""
    product = values * _FACTOR_LOW
    product >>= _HALF
    product += values * _FACTOR_HIGH
    return (product >> _HALF ^ product).astype(np.uint32)


def _product(values: Numbers) -> tuple[Numbers, Numbers]:
    """The lower and upper 64 bits of unsigned ``values`` times the multiplier, computed by halves."""
    low, high = values & _LOW, values >> _HALF
    lowest = low * _FACTOR_LOW
    middle = high * _FACTOR_LOW + (lowest >> _HALF)
    crossed = low * _FACTOR_HIGH + (middle & _LOW)
    upper = high * _FACTOR_HIGH + (middle >> _HALF) + (crossed >> _HALF)
    return (crossed << _HALF) | (lowest & _LOW), upper
