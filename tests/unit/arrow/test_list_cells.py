"""Lists in memory, which consist of pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dsv2.arrow.keyed.cells import ListCells

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


def test_replaced_elements_do_not_stay() -> None:
    cells, rows, lists = ListCells(KIND), np.arange(2), pa.array([[element(1)] * 500, [element(2)] * 500], KIND)
    before = pa.total_allocated_bytes()
    for _ in range(100):
        cells.put(rows, lists)
    assert pa.total_allocated_bytes() - before < 10 * lists.nbytes
    assert cells.get(rows).equals(lists)


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
