"""Aggregates on columns of every type: batches without rows, and the same accumulators with and without results."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dsv2.aggregates import (
    Aggregate,
    ApproxCountDistinct,
    ArgMax,
    Collect,
    Count,
    CountDistinct,
    Custom,
    Mean,
    Sum,
    Variance,
)
from dsv2.arrow.aggregate_columns import columns_of, inputs_of
from dsv2.arrow.keyed.folding import Groups
from dsv2.state import AggregateFunction, aggregate_of

INT, FLOAT, TEXT, BOOL, BYTES = pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.binary()
DATE, TIME = pa.date32(), pa.timestamp("us")
VALUES: dict[pa.DataType, list[Any]] = {
    INT: [1, None, 2, 1],
    FLOAT: [1.0, None, 2.0, 1.0],
    TEXT: ["a", None, "b", "a"],
    BOOL: [False, None, True, False],
    BYTES: [b"", None, b"a", b""],
    DATE: [date(2020, 1, 1), None, date(2020, 1, 2), date(2020, 1, 1)],
    TIME: [datetime(2020, 1, 1), None, datetime(2020, 1, 2), datetime(2020, 1, 1)],
    pa.list_(INT): [[1], None, [2], [1]],
}
ADDING: AggregateFunction[int, int, int] = aggregate_of(
    lambda: 0, lambda value, total: total + value, lambda total: total
)
CASES: list[tuple[Aggregate, list[pa.DataType], list[pa.DataType], pa.DataType, list[Any]]] = [
    (Sum("x"), [INT], [INT], INT, [1, 1, 3, 4]),
    (Count(), [], [INT], INT, [1, 2, 3, 4]),
    (Mean("x"), [INT], [INT, INT], FLOAT, [1.0, 1.0, 1.5, 4 / 3]),
    (Variance("x"), [INT], [INT, FLOAT, FLOAT, FLOAT], FLOAT, [None, None, 0.5, (1 - 1 / 3) / 2]),
    (ArgMax("x", by="y"), [TEXT, INT], [TEXT, INT], TEXT, ["a", "a", "b", "b"]),
    (ArgMax("x", by="y"), [pa.list_(INT), BOOL], [pa.list_(INT), BOOL], pa.list_(INT), [[1], [1], [2], [2]]),
    *(
        (CountDistinct("x"), [kind], [pa.list_(kind)], INT, [1, 1, 2, 2])
        for kind in (INT, FLOAT, TEXT, BOOL, BYTES, DATE, TIME)
    ),
    *(
        (ApproxCountDistinct("x"), [kind], [BYTES], INT, [1, 1, 2, 2])
        for kind in (INT, FLOAT, TEXT, BOOL, BYTES, DATE, TIME)
    ),
    (Collect("x"), [TEXT], [pa.list_(TEXT)], pa.list_(TEXT), [["a"], ["a"], ["a", "b"], ["a", "b", "a"]]),
    (Custom("x", ADDING), [INT], [INT], INT, [1, 1, 3, 4]),
]


@pytest.mark.parametrize(("part", "kinds", "types", "result", "expected"), CASES, ids=str)
@pytest.mark.parametrize("rows", [0, 4])
def test_results_after_each_row(part: Any, kinds: Any, types: Any, result: Any, expected: Any, rows: int) -> None:
    columns, groups = columns_of(part, types, result), Groups(np.zeros(rows, np.int64), min(rows, 1))
    assert columns.found_type(kinds) == result
    current = [pa.nulls(groups.count, kind) for kind in types]
    inputs = inputs_of(part, [pa.array(VALUES[kind][:rows], kind) for kind in kinds], rows, None)
    by_row, after = columns.running(current, inputs, groups)
    folded = columns.fold(current, inputs, groups)
    assert by_row.to_pylist() == expected[:rows]
    assert [column.type for column in after] == [column.type for column in folded] == types
    assert [column.to_pylist() for column in after] == [column.to_pylist() for column in folded]
    assert columns.results(folded).to_pylist() == expected[:rows][-1:]
