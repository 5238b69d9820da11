"""Assigns columnar keys to subtasks, with the same result as for single keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.encoding import Numbers
from dsv2.runtime.state.key_groups import subtask_of

_MODULUS = np.int64((1 << 61) - 1)  # the modulus of Python's numeric hash (sys.hash_info)
_MULTIPLIER = 0x9E3779B97F4A7C15
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FACTOR_LOW, _FACTOR_HIGH = np.uint64(_MULTIPLIER & 0xFFFFFFFF), np.uint64(_MULTIPLIER >> 32)


def subtasks_of(columns: Sequence[pa.Array], max_parallelism: int, parallelism: int) -> Numbers:
    """Return the subtask of each row's key. 16 bits are enough, because key groups have 15.

    Args:
        columns: One column with the keys, or several whose values form a tuple.
        max_parallelism: The number of key groups.
        parallelism: The number of subtasks.

    Raises:
        InvalidKeyError: As in ``subtask_of``.
    """
    plain = columns[0].type if len(columns) == 1 and not columns[0].null_count else pa.null()
    if pa.types.is_int64(plain):
        return _subtasks(hash_whole_numbers(columns[0].to_numpy()), max_parallelism, parallelism)
    if pa.types.is_string(plain):
        coded = pc.dictionary_encode(columns[0])
        targets = _subtasks(hash_texts(coded.dictionary), max_parallelism, parallelism)
        places = coded.indices.to_numpy()
    else:
        values, places = distinct(columns)
        targets = np.array([subtask_of(value, max_parallelism, parallelism) for value in values], dtype=np.uint16)
    by_row: Numbers = targets[places]
    return by_row


def _subtasks(hashes: Numbers, max_parallelism: int, parallelism: int) -> Numbers:
    groups = _remainders(hashes, max_parallelism)
    return (groups * np.uint32(parallelism) // np.uint32(max_parallelism)).astype(np.uint16)


def _remainders(hashes: Numbers, divisor: int) -> Numbers:
    # numpy vectorizes the division but not the % operator.
    remainders: Numbers = hashes - hashes // np.uint32(divisor) * np.uint32(divisor)
    return remainders


def distinct(columns: Sequence[pa.Array]) -> tuple[list[Any], Numbers]:
    """The distinct keys, and the index of each row's key among them."""
    coded = [pc.dictionary_encode(column, null_encoding="encode") for column in columns]
    if len(coded) == 1:
        return coded[0].dictionary.to_pylist(), coded[0].indices.to_numpy().astype(np.int64)
    rows = np.zeros(len(columns[0]), dtype=np.int64)
    for column in coded:
        rows = rows * len(column.dictionary) + column.indices.to_numpy()
        _, rows = np.unique(rows, return_inverse=True)  # at each step, so that the numbers stay small
    _, firsts, places = np.unique(rows, return_index=True, return_inverse=True)
    chosen = pa.array(firsts)
    return list(zip(*(column.take(chosen).to_pylist() for column in columns), strict=True)), places


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
