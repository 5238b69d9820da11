"""Tables that are changed by key agree with a dict, for any changes and any repeated micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import SinkInfo, SinkRunInfo
from tests.lakehouse_tables import FORMATS
from tests.profiles import examples


class Change(NamedTuple):
    name: str
    number: int
    value: int | None


def _is_deletion(change: Change) -> bool:
    return change.value == 0


changes = st.builds(Change, st.sampled_from("abc"), st.integers(-1, 1), st.sampled_from([None, 0, 1, 2]))
micro_batches = st.lists(st.tuples(st.lists(st.lists(changes, max_size=3), max_size=2), st.booleans()), max_size=4)


@pytest.mark.parametrize("library", list(FORMATS))
@given(batches=micro_batches)
@examples(8)
def test_table_agrees_with_a_dict(library: str, batches: Sequence[tuple[list[list[Change]], bool]]) -> None:
    pytest.importorskip(library)
    expected: dict[tuple[str, int], Change] = {}
    with TemporaryDirectory() as folder:
        on_disk = FORMATS[library](Path(folder))
        for batch_id, (parts, is_repeated) in enumerate(batches):
            info = SinkInfo("job", "sink", 1, SinkRunInfo("run", batch_id))
            for _ in range(1 + is_repeated):
                sink = on_disk.sink(Change, key=["name", "number"], deletes=_is_deletion)
                sink.begin(info, batch_id)
                sink.write(info, [RecordBatch(part) for part in parts], batch_id)
            for change in (change for part in parts for change in part):
                expected.pop(change[:2], None)
                if not _is_deletion(change):
                    expected[change[:2]] = change
        found: list[Any] = [tuple(row.values()) for row in on_disk.rows()] if batches else []
        assert sorted(found, key=repr) == sorted(expected.values(), key=repr)
