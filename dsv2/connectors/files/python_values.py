"""Values of Arrow as values of Python. A map becomes a dict, everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of ``batch``, by column name. Raises as ``python_values`` does."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _has_maps(field.type):
            for row, value in zip(rows, python_values(column), strict=True):
                row[field.name] = value
    return rows


def python_values(column: pa.Array) -> list[Any]:
    """Return the values of ``column``.

    Raises:
        OverflowError, ValueError: Python has no such value, such as a date after the year 9999.
    """
    values: list[Any] = column.to_pylist()
    return [_with_dicts(column.type, value) for value in values] if _has_maps(column.type) else values


def _has_maps(kind: pa.DataType) -> bool:
    return "map<" in str(kind)


def _with_dicts(kind: pa.DataType, value: Any) -> Any:
    """Return ``value`` with dicts in place of the lists of pairs that Arrow returns for maps."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _with_dicts(kind.item_type, item) for key, item in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_with_dicts(kind.value_type, item) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _with_dicts(field.type, value[field.name]) for field in kind}
    return value
