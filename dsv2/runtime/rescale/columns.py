"""Converts the keyed state of functions on tables to another parallelism, like ``snapshots``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from dsv2.graph import Operator
from dsv2.runtime.rescale.operator_states import owner_of
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.runtime.state.page_store import in_blob
from dsv2.runtime.state.rows import column_rows
from dsv2.runtime.state.timers import BatchTime
from dsv2.spi import ColumnarFunction
from dsv2.state import StateDeclaration
from dsv2.watermark.event_time import EventTimeOfInputs


def rescaled_columns(operator: Operator, old: Sequence[Mapping[str, Any]], codec: Codec) -> list[dict[str, Any]]:
    """Return the part ``columns`` of the snapshots of new subtasks, moved row by row as through a savepoint."""
    function = operator.function
    if not any(old) or not isinstance(function, ColumnarFunction):
        return [{} for _ in range(operator.parallelism)]
    owner, job = f"Keyed state of {operator}", _Services(codec, BatchTime(0))
    new = [
        function.dsv2_keyed_columns(
            ColumnsEnvironment.of(operator, index, job, in_blob, owner, EventTimeOfInputs(1)), _fail
        )
        for index in range(operator.parallelism)
    ]
    loaders = [columns.loader() for columns in new]
    for subtask, snapshot in enumerate(old):
        for row in column_rows(snapshot, subtask, codec, owner):
            key = codec.loads(row.key or b"", owner)
            loaders[owner_of(operator, key, subtask)].add(row)
    for loader in loaders:
        loader.finish()
    return [columns.snapshot() for columns in new]


class _Services(NamedTuple):
    codec: Codec
    time: BatchTime


def _fail(state: StateDeclaration, key: Any, error: BaseException) -> NoReturn:
    raise error
