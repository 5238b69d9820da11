"""Texts and lists of keyed state in memory and in pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dsv2.arrow.keyed.cells import ListCells, VariableCells
from dsv2.arrow.keyed.page_format import decode_pages, encode_pages, pieces_of, with_piece
from dsv2.errors import CorruptDataError

KIND = pa.list_(pa.struct([("number", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))]))


def element(number: int) -> dict[str, Any]:
    """Some fields are null."""
    return {"number": number, "text": None if number % 5 == 0 else f"é{number}", "tags": [str(number)] * (number % 3)}


def test_lists_of_many_pieces_and_with_replaced_elements() -> None:
    random, cells, model = np.random.default_rng(0), ListCells(KIND), dict[int, list[Any]]()
    for step in range(300):
        rows = random.permutation(20)[: random.integers(0, 20)]
        added = [[element(int(number)) for number in random.integers(0, 99, random.integers(0, 9))] for _ in rows]
        new = np.array([row not in model or random.random() < 0.1 for row in rows.tolist()], np.bool_)
        cells.append(rows, pa.array(added, KIND), new)
        for row, elements, is_new in zip(rows.tolist(), added, new.tolist(), strict=True):
            model[row] = [*([] if is_new else model[row]), *elements]
        if step % 10 == 0:
            known = random.permutation(list(model))
            assert cells.get(known).to_pylist() == [model[row] for row in known.tolist()]


def test_first_elements_of_lists_may_come_last() -> None:
    cells = ListCells(KIND)
    cells.begin(np.array([0, 1, 3]))
    cells.put(np.array([2]), pa.array([[element(9)]], KIND))
    for number in range(3):
        cells.append(
            np.array([3, 1]), pa.array([[element(number)] * 2, [element(number)]], KIND), np.zeros(2, np.bool_)
        )
    assert cells.lacks(np.arange(4)).tolist() == [True, True, False, True]
    assert cells.sizes(np.arange(4)).tolist() == [0, 3, 1, 6]
    cells.complete(np.array([3, 0]), pa.array([[element(5)] * 700, [element(6), element(7)]], KIND))
    cells.put(np.array([2]), pa.array([[element(8)] * 2000], KIND))  # obsolete elements are removed
    cells.put(np.array([2]), pa.array([[element(9)]], KIND))
    cells.complete(np.array([1]), pa.array([[element(4)]], KIND))
    third = [element(number) for number in (0, 0, 1, 1, 2, 2)]
    first = [element(4), element(0), element(1), element(2)]
    assert cells.get(np.arange(4)).to_pylist() == [
        [element(6), element(7)],
        first,
        [element(9)],
        [element(5)] * 700 + third,
    ]
    assert not cells.lacks(np.arange(4)).any()


def test_replaced_elements_do_not_stay() -> None:
    cells, rows, lists = ListCells(KIND), np.arange(2), pa.array([[element(1)] * 500, [element(2)] * 500], KIND)
    before = pa.total_allocated_bytes()
    for _ in range(100):
        cells.put(rows, lists)
    assert pa.total_allocated_bytes() - before < 10 * lists.nbytes
    assert cells.get(rows).equals(lists)


def test_replaced_values_do_not_stay() -> None:
    """A single value that grows, such as the distinct values of an aggregate."""
    cells, row = VariableCells(pa.list_(pa.int64())), np.zeros(1, np.int64)
    before = pa.total_allocated_bytes()
    for size in range(10_000, 20_000, 50):
        value = pa.array([np.arange(size)], pa.list_(pa.int64()))
        cells.put(row, value)
        assert cells.get(row).equals(value)
    assert pa.total_allocated_bytes() - before < 10 * value.nbytes


def test_to_append_to_a_list_does_not_read_it() -> None:
    class Unread(ListCells):
        def get(self, rows: Any) -> Any:
            raise AssertionError

    cells, lists = Unread(KIND), pa.array([[element(1)] * 10], KIND)
    row, old = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    cells.put(row, lists)
    for _ in range(999):
        cells.append(row, lists, old)
    assert ListCells.get(cells, row).value_lengths().to_pylist() == [10_000]


def test_pieces_of_a_page() -> None:
    one, other = encode_pages([pa.array([1, 2, 3])], np.array([0, 1, 3]))
    page = with_piece(with_piece(one, other), one)
    assert list(map(bytes, pieces_of(one))) == [one]
    assert list(map(bytes, pieces_of(page))) == [one, other, one]
    assert decode_pages([pa.int64()], pieces_of(page))[0][0].to_pylist() == [1, 2, 3, 1]
    for size in (1, 2, len(one), len(page) - 5):
        with pytest.raises(CorruptDataError, match="before its last piece"):
            pieces_of(page[:-size])


def test_first_columns_are_decoded_without_the_others() -> None:
    (page,) = encode_pages([pa.array([1, 2]), pa.array(["a", "b"])], np.array([0, 2]))
    columns, counts = decode_pages([pa.int64(), pa.string()], [page], 1)
    assert [column.to_pylist() for column in columns] == [[1, 2]]
    assert counts.tolist() == [2]


def test_large_pages_of_texts_are_compressed_and_damaged_ones_refused() -> None:
    texts, bounds = (
        pa.array([f"https://example.com/item/{number}" for number in range(5_000)]),
        np.array([0, 10, 5_000]),
    )
    small, large = encode_pages([texts], bounds)
    decoded, counts = decode_pages([pa.string()], [small, large])
    assert decoded[0].equals(texts)
    assert counts.tolist() == [10, 4_990]
    assert b"https://example.com/item/9" in small
    assert 3 * len(large) < pc.sum(pc.binary_length(texts)).as_py()
    for damaged in (large[:-1], large[:4], large[:2], b"\xff" + large[1:]):
        with pytest.raises(CorruptDataError, match="page of columns"):
            decode_pages([pa.string()], [damaged])
