"""The base of operators of keyed streams that always run on columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dsv2.aggregates.field_types import field_types
from dsv2.arrow.encoding import Numbers
from dsv2.arrow.functions import TableFunction
from dsv2.arrow.records import ArrowWholeNumbers, keys_of
from dsv2.arrow.schema import schema_of
from dsv2.base.derived_classes import derived_class, unused_name
from dsv2.base.type_variables import IN, OUT
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import EmitBatch
from dsv2.watermark.event_time import LONG_MIN


class KeyedOperator(TableFunction[IN, OUT]):
    """An operator on records of ``kind``, whose key is the fields ``key_names``. It emits records of ``result``."""

    def __init__(self, kind: type[IN], key_names: Sequence[str], result: type[OUT]) -> None:
        self.kind = kind
        self.key_names = key_names
        self.result = result

    @property
    def record_types(self) -> tuple[type, ...]:
        return self.kind, self.result

    @property
    def dsv2_tables_of(self) -> type:
        return self.kind

    def dsv2_collect_columns(self, emit: EmitBatch) -> Callable[..., None]:
        return emit

    def _keys_of(self, table: pa.Table) -> list[pa.ChunkedArray]:
        return keys_of(table, self.key_names)


def with_time(kind: type[Any]) -> tuple[type[Any], str]:
    """Return a class with the fields of ``kind`` and the timestamps of its records, and the field of these."""
    fields = field_types(kind) or {}
    name = unused_name("timestamp", fields)
    return derived_class(kind, "with_timestamp", (*fields.items(), (name, int))), name


def times_or_least(batch: RecordBatch[Any]) -> Numbers:
    """The timestamps of a batch. Records without one come before all others."""
    times = batch.timestamps
    if isinstance(times, ArrowWholeNumbers):
        found: Numbers = times.array.to_numpy()
        return found
    if times is None:
        return np.full(len(batch), LONG_MIN, np.int64)
    return np.array([LONG_MIN if time is None else time for time in times], np.int64)


def check_kept(kind: type[Any], result: type[Any], others: Collection[str]) -> str | None:
    """Return why the fields of ``result`` but ``others`` cannot be those of ``kind``; None if they can be."""
    given = schema_of(kind)
    for field in schema_of(result):
        if field.name in others:
            continue
        if field.name not in given.names:
            return f"{kind.__qualname__} has no field {field.name!r} of {result.__qualname__}."
        if given.field(field.name).type != field.type:
            return (
                f"the field {field.name!r} of {result.__qualname__} is {field.type}, and that of {kind.__qualname__} "
                f"is {given.field(field.name).type}."
            )
    return None
