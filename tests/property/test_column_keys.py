"""Keys in columns go to the same subtasks as single keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.arrow.hashing import subtasks_of
from dsv2.arrow.keyed.keys import distinct_keys, encoded_keys, key_columns
from dsv2.errors import InvalidKeyError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.key_groups import subtask_of

M = (1 << 61) - 1  # the modulus of Python's hash of numbers, near which errors are likely
EDGES = st.builds(lambda factor, off: M * factor + off, st.integers(-3, 3), st.integers(-1, 1))
COLUMNS: Sequence[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(),
     st.integers(-(2**63), 2**63 - 1) | EDGES.filter(lambda number: abs(number) < 2**63) | st.integers(-3, 3)),
    (pa.string(), st.text(st.characters(codec="utf-8"), max_size=3)),
    (pa.bool_(), st.booleans()), (pa.binary(), st.binary(max_size=3)),
    (pa.float64(), st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0])), (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.decimal128(38, 18), st.decimals(-(10**6), 10**6, places=3)),
]  # fmt: skip
PARALLELISM = st.tuples(st.integers(1, 1 << 15), st.integers(1, 1 << 15)).map(sorted)


@given(st.data(), st.sampled_from(COLUMNS), PARALLELISM)
def test_one_column(data: st.DataObject, column: tuple[pa.DataType, st.SearchStrategy[Any]], counts: list[int]) -> None:
    parallelism, largest = counts
    kind, values = column
    array = pa.array(data.draw(st.lists(values, min_size=1)), kind)
    expected = [subtask_of(value, largest, parallelism) for value in array.to_pylist()]
    assert subtasks_of([array], largest, parallelism).tolist() == expected


@pytest.mark.parametrize("edge", [-(2**63), -M, -(2**32), -2, 0, 2**31, 2**32, 2**33, M, 2**63])
def test_single_numbers(edge: int) -> None:
    """Other numbers in the column may change how they are hashed."""
    for number in range(max(edge - 2, -(2**63)), min(edge + 3, 2**63)):
        for column in ([number], [number, 1]):
            expected = [subtask_of(value, 1 << 15, 1 << 15) for value in column]
            assert subtasks_of([pa.array(column, pa.int64())], 1 << 15, 1 << 15).tolist() == expected


@given(st.data(), st.lists(st.sampled_from(COLUMNS), min_size=2, max_size=3), PARALLELISM)
def test_several_columns_are_a_tuple(data: st.DataObject, columns: list[Any], counts: list[int]) -> None:
    parallelism, largest = counts
    rows = data.draw(st.lists(st.tuples(*(values for _, values in columns)), min_size=1))
    arrays = [pa.array(values, kind) for values, (kind, _) in zip(zip(*rows, strict=True), columns, strict=True)]
    keys = zip(*(array.to_pylist() for array in arrays), strict=True)
    expected = [subtask_of(key, largest, parallelism) for key in keys]
    assert subtasks_of(arrays, largest, parallelism).tolist() == expected


@given(st.data(), st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3))
def test_stored_keys_are_those_of_single_keys(data: st.DataObject, columns: list[Any]) -> None:
    several = len(columns) > 1
    parts = (st.none() | values if several else values for _, values in columns)
    rows = data.draw(st.lists(st.tuples(*parts)))
    arrays = [pa.array([row[place] for row in rows], kind) for place, (kind, _) in enumerate(columns)]
    keys = list(zip(*(array.to_pylist() for array in arrays), strict=True)) if several else arrays[0].to_pylist()
    codec, different = Codec(TypeRegistry()), list(dict.fromkeys(keys))
    found, places = distinct_keys(key_columns(arrays), codec)
    single = encoded_keys(different, codec)
    assert found.values.to_pylist() == single.values.to_pylist()
    assert found.hashes.tolist() == single.hashes.tolist()
    assert places.tolist() == list(map(different.index, keys))


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_missing_key_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidKeyError, match="must not be None"):
        subtasks_of([pa.array([None], kind)], 128, 2)
