"""The state of subtasks as rows, with that of functions on tables, which Arrow reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.rows import RowTable, StateRow, rows_of


def state_rows(snapshot: bytes, subtask: int, codec: Codec, owner: str) -> Iterator[tuple[str, StateRow]]:
    """Return the state of a subtask as rows, as ``rows_of`` does."""
    return rows_of(snapshot, subtask, codec, owner, _read_tables)


def _read_tables(columns: Mapping[str, Any]) -> Mapping[str, RowTable]:
    from dsv2.arrow.keyed.snapshots import stored_columns  # pyarrow is optional

    return stored_columns(columns)
