"""Joins with declared results on columns: the choice of a join, and that over all time.

The rows that wait for partners are lists of their keys. They are those of the joins in ``dsv2.extension.join``, which
join record by record with the same results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dsv2.arrow.column_join import ColumnJoin, Declared, in_order
from dsv2.arrow.records import keys_of, table_of, taken_times
from dsv2.arrow.schema import names_without_none, schema_of
from dsv2.arrow.segments import matches
from dsv2.arrow.temporal_join import TemporalColumns
from dsv2.arrow.versioned_join import VersionedColumns
from dsv2.arrow.waiting_joins import IntervalColumns, WindowJoinColumns
from dsv2.base.columnar import fields_read
from dsv2.errors import InternalError, SchemaError
from dsv2.extension.join.declared import DeclaredJoin, KeyField, ResultField, Right, SideField
from dsv2.extension.join.modes import IntervalMode, TemporalMode, UnboundedMode, VersionedMode, WindowMode
from dsv2.extension.join.unbounded import BOTH_SIDES
from dsv2.extension.window.strategy import CumulatingWindowStrategy, why_rows
from dsv2.model.record_batch import RecordBatch
from dsv2.state import StateDeclarations


def column_join(
    declared: DeclaredJoin[Any],
    sources: Mapping[str, ResultField],
    kinds: Sequence[type[Any]],
    names: Sequence[Sequence[str]],
) -> ColumnJoin | str:
    """Return the join on columns, or the reason why there is none.

    Args:
        declared: The declaration.
        sources: What each field of the result holds.
        kinds: The classes of the records of both sides.
        names: The fields that are their keys.
    """
    if declared.options.is_deletion is not None:
        return "deletions are found by a callable"
    if declared.options.row_key is not None:
        return "a key has several rows"
    if any(option is not None for option in declared.options):
        return "late records are passed to a callable"
    if (reason := _misfit(declared.result, sources, kinds, names)) is not None:
        return reason
    join = Declared(declared.result, sources, kinds, names, declared.join_type)
    match declared.mode:
        case UnboundedMode(ttl=ttl):
            states = [
                StateDeclarations.list_state(name, kind, ttl=ttl)
                for name, kind in zip(("left", "right"), kinds, strict=True)
            ]
            return UnboundedColumns(join, states)
        case IntervalMode(by_clock=True):
            return "the interval is in processing time"
        case IntervalMode(lower=lower, upper=upper):
            if isinstance(upper, str) and (reason := _not_a_time(upper, kinds[0])) is not None:
                return reason
            return IntervalColumns(join, lower, upper)
        case WindowMode(running=True):
            return "the join is running"
        case WindowMode(strategy=strategy):
            if isinstance(strategy, CumulatingWindowStrategy):
                return "the windows cumulate"
            return why_rows(strategy) or WindowJoinColumns(join, strategy)  # type: ignore[arg-type]
        case TemporalMode():
            return TemporalColumns(join, declared.mode)
        case VersionedMode(ttl=ttl):
            return VersionedColumns(join) if ttl is None else "versions have a time to live"
    raise InternalError(f"{declared.mode!r} is unknown.")


def _misfit(
    result: type[Any],
    sources: Mapping[str, ResultField],
    kinds: Sequence[type[Any]],
    names: Sequence[Sequence[str]],
) -> str | None:
    try:
        left, right, made = *map(schema_of, kinds), schema_of(result)
    except SchemaError as error:
        return str(error).rstrip(".")
    for kind, schema in zip(kinds, (left, right), strict=True):
        for field in schema:
            if "decimal" in str(field.type):
                return f"{field.name!r} of {kind.__qualname__} is a Decimal, whose digits a column does not keep"
    schemas = left, right
    if any(name not in schema.names for schema, of in zip(schemas, names, strict=True) for name in fields_read(of)):
        return "a part of a key is not a column"
    keys = [keys_of(schema.empty_table(), of) for schema, of in zip(schemas, names, strict=True)]
    if [column.type for column in keys[0]] != [column.type for column in keys[1]]:
        return "the keys of both sides have different types"
    for name, source in sources.items():
        if isinstance(source, SideField | KeyField):
            given = right if isinstance(source, Right) else left
            if source.field not in given.names:
                return f"{source.field!r} is not a column"
            if given.field(source.field).type != made.field(name).type:
                wanted, found = made.field(name).type, given.field(source.field).type
                return f"{name!r} of {result.__qualname__} is {wanted}, and {source.field!r} is {found}"
        elif not pa.types.is_int64(made.field(name).type):
            return f"{name!r} of {result.__qualname__} is {made.field(name).type}, and the bounds of windows are int64"
    return None


def _not_a_time(name: str, kind: type[Any]) -> str | None:
    field = next((field for field in schema_of(kind) if field.name == name), None)
    if field is None:
        return f"{kind.__qualname__} has no field {name!r}"
    required = name in names_without_none(kind)
    return None if pa.types.is_int64(field.type) and required else f"{name!r} of {kind.__qualname__} is not an int"


class UnboundedColumns(ColumnJoin):
    """All records with the same key are partners."""

    @property
    def state_layout(self) -> str:
        return BOTH_SIDES

    def dsv2_process_side(self, side: int, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table = table_of(batch.records, self.join.kinds[side])
        keys = self._keys(side, table)
        stored = self._lists(1 - side, ctx).get(keys)
        own, partners = matches(stored.of_keys, stored.of, stored.count)
        times = taken_times(batch.timestamps, pa.array(own))
        self._emit(output, *in_order(side, (table, own), (stored.rows, partners)), times)
        self._lists(side, ctx).append(keys, table)
