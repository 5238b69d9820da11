"""HyperLogLog sketches as bytes: the hashes in their order while they are few, then a register of one byte for each.

The estimator is that of Ertl, New cardinality estimation algorithms for HyperLogLog sketches (2017), algorithm 6.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

from dsv2.aggregates.result_field import is_nan
from dsv2.errors import SchemaError

_BITS: Final = 12  # of a hash that choose its register
_REGISTERS: Final = 1 << _BITS
_RANKS: Final = 64 - _BITS  # the number of bits that determine the rank
_HASH: Final = 8  # bytes
_INT64: Final = 1 << 63
_MOST_HASHES: Final = _REGISTERS // _HASH - 1  # more take as many bytes as the registers


def hash_of(value: Any) -> bytes:
    """Return 64 bits of a value, the same in every process. Equal numbers have the same.

    Raises:
        SchemaError: The type has no such hash.
    """
    return blake2b(_bytes_of(value), digest_size=_HASH).digest()


def _bytes_of(value: Any) -> bytes:
    match value:
        case str():
            return b"s" + value.encode("utf-8", "surrogatepass")
        case bytes():
            return b"b" + value
        case int() | float() | Decimal() | Fraction():
            return b"nan" if is_nan(value) else _bytes_of_number(value)
        case date() | time() | timedelta() | UUID():
            return f"{type(value).__name__} {value}".encode()
        case tuple():
            return b"t" + b"".join(map(hash_of, value))
    raise SchemaError(f"ApproxCountDistinct cannot count {type(value).__qualname__}. Aggregate a text or a number.")


def _bytes_of_number(value: Any) -> bytes:
    if abs(value) < _INT64 and value == (whole := int(value)):
        return b"%d" % whole
    return b"h%d" % hash(value)  # that of numbers has no seed, but is the same for -1 and -2


def with_hash(sketch: bytes, hashed: bytes) -> bytes:
    """Return the sketch with one more hash."""
    if len(sketch) == _REGISTERS:
        bits = int.from_bytes(hashed)
        place, rank = bits >> _RANKS, _RANKS + 1 - (bits & (1 << _RANKS) - 1).bit_length()
        return sketch if sketch[place] >= rank else sketch[:place] + bytes((rank,)) + sketch[place + 1 :]
    count = len(sketch) // _HASH
    place = _HASH * bisect_left(range(count), hashed, key=lambda number: sketch[_HASH * number : _HASH * (number + 1)])
    if sketch[place : place + _HASH] == hashed:
        return sketch
    hashes = sketch[:place] + hashed + sketch[place:]
    return hashes if count < _MOST_HASHES else _with_hashes(bytes(_REGISTERS), hashes)


def with_sketch(sketch: bytes, other: bytes) -> bytes:
    """Return the sketch of the values of two."""
    if len(other) < _REGISTERS:
        return _with_hashes(sketch, other)
    if len(sketch) < _REGISTERS:
        return _with_hashes(other, sketch)
    return bytes(map(max, sketch, other))


def _with_hashes(sketch: bytes, hashes: bytes) -> bytes:
    for first in range(0, len(hashes), _HASH):
        sketch = with_hash(sketch, hashes[first : first + _HASH])
    return sketch


def estimate(sketch: bytes) -> int:
    """Return the number of distinct values."""
    if len(sketch) < _REGISTERS:
        return len(sketch) // _HASH
    counts = [sketch.count(rank) for rank in range(_RANKS + 2)]
    found = _REGISTERS * _tau(1 - counts[-1] / _REGISTERS)
    for count in reversed(counts[1:-1]):
        found = 0.5 * (found + count)
    found += _REGISTERS * _sigma(counts[0] / _REGISTERS)
    return round(_REGISTERS * _REGISTERS / (2 * math.log(2) * found))


def _sigma(share: float) -> float:
    """The part of the registers that are 0. Not all are."""
    found, factor, before = share, 1.0, -1.0
    while found != before:
        share *= share
        before = found
        found += share * factor
        factor += factor
    return found


def _tau(share: float) -> float:
    """The part of the registers that have the highest rank. Not all do."""
    if share in (0.0, 1.0):
        return 0.0
    found, factor, before = 1 - share, 1.0, -1.0
    while found != before:
        share = math.sqrt(share)
        before = found
        factor *= 0.5
        found -= (1 - share) ** 2 * factor
    return found / 3
