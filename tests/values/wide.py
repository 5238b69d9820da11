"""A record class with an optional field for each declared type, so that one job carries all values to a sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import make_dataclass
from typing import Any

from dsv2 import Collector, OneInputStreamProcessFunction, PartitionedContext
from dsv2.errors import SchemaError
from dsv2.file_log.schema import json_schema
from tests.values.awkward import GROUPS, annotation_at, holder_of, value_at

__all__ = ("EmitWide", "Wide", "by_field", "field_of", "has_field", "in_one_record")


def _has_columns(annotation: Any) -> bool:
    try:
        json_schema(holder_of(annotation))
    except SchemaError:
        return False
    return True


# Declared type -> the name of its field.
_FIELDS: dict[str, tuple[str, Any]] = {}
for _group in GROUPS:
    if str(_group.annotation) not in _FIELDS and _has_columns(_group.annotation):
        _FIELDS[str(_group.annotation)] = f"value_{len(_FIELDS)}", _group.annotation

Wide: Any = make_dataclass(
    "Wide",
    [("position", int), *((name, annotation | None) for name, annotation in _FIELDS.values())],
    frozen=True,
    namespace={"__module__": __name__},
)


def has_field(position: int) -> bool:
    """Whether the type of the value at this position can be a column."""
    return str(annotation_at(position)) in _FIELDS


def field_of(position: int) -> str:
    """The name of the field for the value at this position."""
    return _FIELDS[str(annotation_at(position))][0]


def in_one_record(position: int) -> Any:
    """A record with the value at this position. All other fields are None."""
    fields = dict.fromkeys(name for name, _ in _FIELDS.values())
    return Wide(**{**fields, "position": position, field_of(position): value_at(position)})


class EmitWide(OneInputStreamProcessFunction[int, Any]):
    """Emits records with the values at the positions that it receives."""

    def process_record(self, record: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(in_one_record(record))


def by_field(rows: Iterable[Mapping[str, Any]]) -> dict[int, Any]:
    """The values by position."""
    return {row["position"]: row[field_of(row["position"])] for row in rows}
