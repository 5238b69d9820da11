"""A source that reads a table of pandas, Arrow or a library with its interface."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Generic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.records import ArrowRecords
from dsv2.arrow.schema import fitted, names_without_none, schema_of, table_to_rows
from dsv2.base.type_variables import T
from dsv2.errors import ConfigurationError
from dsv2.sources import IndexedSource
from dsv2.sources.dataframe import ArrowStream, TableLike


class TableSource(IndexedSource[T], Generic[T]):
    """Reads the rows of a table, which is sent to all tasks, like a collection: ``env.from_dataframe(table, Record)``.

    Args:
        table: A pandas DataFrame, whose index is not read, an Arrow table, or another object with
            ``__arrow_c_stream__``, such as a DataFrame of Polars. It is read once.
        record_type: A dataclass or NamedTuple class, whose fields are matched with columns by name, or ``dict``.
        records_per_batch: The maximum number of records in a micro-batch. None: no limit.

    Raises:
        ConfigurationError: ``table`` is something else, or ``records_per_batch`` is below 1.
        SchemaError: The table does not match ``record_type``.
    """

    def __init__(
        self, table: TableLike | ArrowStream, record_type: type[T], *, records_per_batch: int | None = None
    ) -> None:
        self.record_type = self.dsv2_record_type = record_type
        rows = table if isinstance(table, pa.Table) else _read(table, record_type)
        self.table = (rows if record_type is dict else fitted(rows, record_type, keeps_decimals=True)).combine_chunks()
        super().__init__(count=len(self.table), records_per_batch=records_per_batch, records_per_second=None)

    @property
    def dsv2_why_rows(self) -> str | None:
        return "" if self._has_columns else "columns would change its values"

    def read(self, indices: range) -> list[T]:
        rows = self._taken(indices)
        found: list[Any] = rows.to_pylist() if self.record_type is dict else table_to_rows(rows, self.record_type)
        return found

    def dsv2_read_columns(self, indices: range) -> Sequence[T]:
        return ArrowRecords(self._taken(indices), self.record_type) if self._has_columns else self.read(indices)

    @cached_property
    def _has_columns(self) -> bool:
        """False for dicts, and for decimals with digits of their own, which a column would change."""
        return self.record_type is not dict and self.table.schema.equals(schema_of(self.record_type))

    def _taken(self, indices: range) -> pa.Table:
        return self.table.take(pa.array(np.arange(indices.start, indices.stop, indices.step)))


def _read(table: object, record_type: type) -> pa.Table:
    if type(table).__module__.startswith("pandas.") or not hasattr(table, "__arrow_c_stream__"):
        return _of_pandas(table, record_type)
    try:
        return pa.table(table)
    except Exception as error:
        raise ConfigurationError(f"from_dataframe: Arrow cannot read the {type(table).__name__}: {error}") from error


def _of_pandas(dataframe: object, record_type: type) -> pa.Table:
    try:
        table = pa.Table.from_pandas(dataframe, preserve_index=False)
    except Exception as error:
        _refuse_column(dataframe)
        raise ConfigurationError(f"from_dataframe: Arrow cannot read the pandas DataFrame: {error}") from error
    return table if record_type is dict else _with_nan(table, record_type)


def _refuse_column(dataframe: Any) -> None:
    """Raise ``ConfigurationError`` for the first column that Arrow cannot read."""
    if not hasattr(dataframe, "columns"):
        found = type(dataframe).__name__
        expected = "a DataFrame of Spark or pandas, or an Arrow table"
        raise ConfigurationError(f"from_dataframe takes {expected}, not a {found}.")
    for name, series in dataframe.items():
        try:
            pa.Array.from_pandas(series)
        except Exception as error:
            raise ConfigurationError(
                f"from_dataframe: column {name!r} of the pandas DataFrame has a value that Arrow does not support: "
                f"{error}. Convert it, or use from_collection."
            ) from error


def _with_nan(table: pa.Table, record_type: type) -> pa.Table:
    """Replace nulls by NaN where a field is not optional: in pandas they are the same."""
    required = names_without_none(record_type)
    for place, field in enumerate(table.schema):
        if pa.types.is_floating(field.type) and field.name in required and table.column(place).null_count:
            table = table.set_column(place, field.name, pc.fill_null(table.column(place), float("nan")))
    return table
