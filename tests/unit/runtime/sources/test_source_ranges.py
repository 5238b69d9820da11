"""The ranges of the sources in a micro-batch, for errors and skipped records."""

from __future__ import annotations

from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.base.record_position import Offset
from dsv2.graph import Operator
from dsv2.runtime.sources.ranges import has_read, ranges_read
from dsv2.sinks import CollectSink
from dsv2.sources import BaseSource, CollectionSource, DataFrameSource
from tests.spans import Spans
from tests.support import NoRows


class CountedSpans(Spans):
    """Knows what it has read."""

    def has_read(self, split: Any, offset: Offset, /) -> bool:
        return isinstance(offset, int) and offset < split.position


NUMBERS = CollectionSource([1, 2, 3, 4])
SPANS = CountedSpans({"a": 9, "b": 2}, limit=1)
ROWS = DataFrameSource(NoRows(), dict)


def operator(source: BaseSource[Any]) -> Operator:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_source(source).with_uid("in").to_sink(CollectSink[Any]())
    (found,) = (one for one in env.build_plan().operators if one.uid == "in")
    return found


def position(*splits: tuple[str, int, int]) -> Any:
    """An offset of ``SPANS``: the name of each split and its positions before and behind the micro-batch."""
    entries = [
        {"at": {"name": name, "end": 9, "position": stop}, "from": {"name": name, "end": 9, "position": start}}
        for name, start, stop in splits
    ]
    return {"readers": [{"splits": entries}]}


@pytest.mark.parametrize(
    ("before", "position", "expected"),
    [
        (None, 3, ["source 'in', split 0: offset 0 to 2"]),
        (1, 3, ["source 'in', split 0: offset 1 to 2"]),
        (3, 3, []),
    ],
)
def test_range_of_indices(before: int | None, position: int, expected: list[str]) -> None:
    start = None if before is None else {"position": before}
    assert ranges_read(operator(NUMBERS), start, {"position": position}) == expected


def test_ranges_of_splits_that_have_moved() -> None:
    moved = position(("a", 0, 4), ("b", 2, 2))
    assert ranges_read(operator(SPANS), None, moved) == ["source 'in', split 'a': position 0 up to 4"]


def test_each_changed_part_of_a_position() -> None:
    held = {"at": {"name": "a", "end": 9, "position": 5}, "from": {"name": "a", "end": 7, "position": 3}}
    found = ranges_read(operator(SPANS), None, {"readers": [{"splits": [held]}]})
    assert found == ["source 'in', split 'a': end 7 up to 9, position 3 up to 5"]


def test_rows_of_a_dataframe_have_no_offsets() -> None:
    (found,) = ranges_read(operator(ROWS), None, {"position": 1})
    assert found == "source 'in': rows of a DataFrame, which have no offsets"


@pytest.mark.parametrize(
    ("source", "position", "split", "offset", "expected"),
    [
        (NUMBERS, {"position": 3}, 0, 2, True),
        (NUMBERS, {"position": 3}, 0, 3, False),
        (NUMBERS, {"position": 3}, 0, "2", False),
        (SPANS, position(("a", 0, 4), ("b", 0, 2)), "b", 1, True),
        (SPANS, position(("a", 0, 4), ("b", 0, 2)), "b", 2, False),
        (SPANS, position(("a", 0, 4)), "b", 1, False),
        (Spans({"a": 9}), position(("a", 0, 4)), "a", 1, False),
        (ROWS, {"position": 3}, 0, 1, False),
    ],
    ids=["read", "next", "of another kind", "split read", "split next", "another split", "not known", "rows"],
)
def test_whether_a_record_is_read(
    source: BaseSource[Any], position: Any, split: Any, offset: Offset, expected: bool
) -> None:
    assert has_read(operator(source), position, split, offset) is expected
