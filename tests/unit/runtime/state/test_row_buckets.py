"""Rows in buckets on the local disk."""

from __future__ import annotations

import tracemalloc
from collections import Counter

from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.difference import RowBuckets


def row(number: int, value: bytes = b"") -> StateRow:
    return StateRow(number % 3, RowKind.KEYED, "count", b"%d" % number, value)


def test_rows_come_back_in_the_same_buckets() -> None:
    rows = [*map(row, range(1000)), StateRow(0, RowKind.PART, "fields", None, b"x"), row(7, b"again")]
    with RowBuckets(rows) as first, RowBuckets(reversed(rows)) as second:
        buckets = list(zip(first, second, strict=True))
    assert Counter(one for bucket, _ in buckets for one in bucket) == Counter(rows)
    assert all(Counter(bucket) == Counter(other) for bucket, other in buckets)
    (of_seven,) = [bucket for bucket, _ in buckets if row(7) in bucket]
    assert row(7, b"again") in of_seven
    assert max(len(bucket) for bucket, _ in buckets) < 50


def test_many_rows_are_not_in_memory() -> None:
    tracemalloc.start()
    try:
        with RowBuckets(row(number, b"v" * 10_000) for number in range(20_000)) as buckets:
            found = sum(len(bucket) for bucket in buckets)
        assert found == 20_000
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


def test_no_rows() -> None:
    with RowBuckets([]) as buckets:
        assert not any(buckets)
