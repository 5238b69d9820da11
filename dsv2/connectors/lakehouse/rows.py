"""Records as rows of a table, and as changes by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dsv2.base.type_variables import T
from dsv2.connectors.files.sink_tables import table_schema
from dsv2.connectors.files.table_files import table_of, table_of_batches
from dsv2.errors import SchemaError
from dsv2.model.record_batch import RecordBatch

_PLACE, _DELETES = "dsv2_place", "dsv2_deletes"


class Changes(NamedTuple):
    """The changes of a table in one micro-batch.

    Attributes:
        rows: The rows to insert. With a key, they replace those with the same key, and no two have the same one.
        deleted: The keys of rows to delete, which are not those of ``rows``. Empty without a key.
    """

    rows: pa.Table
    deleted: pa.Table


class RowWriter(Generic[T]):
    """Converts records to rows.

    Args:
        schema: The columns, as Spark writes them in JSON.
        key: The columns that identify a row. Empty: rows are only inserted.
        row: Returns the row of a record. None: the record is the row.
        deletes: Returns whether a record deletes the row with its key. None: no record does.
        sink: The sink, for errors.
    """

    def __init__(
        self,
        schema: dict[str, Any],
        key: Sequence[str],
        row: Callable[[T], Any] | None,
        deletes: Callable[[T], bool] | None,
        sink: str,
    ) -> None:
        self._schema = schema
        self._key = list(key)
        self._row = row
        self._deletes = deletes
        self._sink = sink
        nullable = [{**field, "nullable": field["name"] not in key} for field in schema["fields"]]
        self._of_deletions = {**schema, "fields": nullable}

    def changes(self, batches: Sequence[RecordBatch[T]]) -> Changes:
        """Return the changes that the records of a micro-batch make.

        Raises:
            SchemaError: A record does not fit; names it.
        """
        if self._row is None and self._deletes is None:
            rows = table_of_batches(batches, self._schema, self._sink)
            return self._last(rows, rows.schema.empty_table(), None) if self._key else _inserted(rows)
        records = [record for batch in batches for record in batch.rows()]
        deletes = [False] * len(records) if self._deletes is None else list(map(self._deletes, records))
        made = records if self._row is None else list(map(self._row, records))
        rows = self._table([row for row, deleted in zip(made, deletes, strict=True) if not deleted], self._schema)
        gone = self._table([row for row, deleted in zip(made, deletes, strict=True) if deleted], self._of_deletions)
        return self._last(rows, gone, deletes) if self._key else _inserted(rows)

    def _table(self, rows: Sequence[Any], schema: dict[str, Any]) -> pa.Table:
        return table_of(rows, schema, self._sink) if rows else table_schema(schema).empty_table()

    def _last(self, rows: pa.Table, gone: pa.Table, deletes: Sequence[bool] | None) -> Changes:
        """Keep the last change of each key. ``deletes``: The order of both. None: there are only rows."""
        self._check_keys(rows)
        self._check_keys(gone)
        flags = pa.array([False] * rows.num_rows if deletes is None else deletes, pa.bool_())
        places = pa.array(range(len(flags)), pa.int64())
        numbered = [
            table.append_column(_PLACE, places.filter(chosen)).append_column(_DELETES, flags.filter(chosen))
            for table, chosen in ((rows, pc.invert(flags)), (gone, flags))
        ]
        every = pa.concat_tables(numbered)
        last = every.group_by(self._key).aggregate([(_PLACE, "max")])[f"{_PLACE}_max"]
        kept = every.filter(pc.is_in(every[_PLACE], last.combine_chunks())).sort_by(_PLACE)
        columns = rows.column_names
        return Changes(
            kept.filter(pc.invert(kept[_DELETES])).select(columns), kept.filter(kept[_DELETES]).select(self._key)
        )

    def _check_keys(self, rows: pa.Table) -> None:
        for name in self._key:
            if rows[name].null_count:
                raise SchemaError(f"{self._sink}: a record has None in the column {name!r} of the key.")


def _inserted(rows: pa.Table) -> Changes:
    return Changes(rows, rows.select([]).slice(0, 0))


def aligned(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return ``rows`` with all columns of a table, in their order. Columns that they do not have are null."""
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))
