"""A record class with an optional field for each declared type, so that one job carries all values to a sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import make_dataclass
from typing import Any, get_origin

from dsv2 import Collector, OneInputStreamProcessFunction, PartitionedContext
from dsv2.errors import SchemaError
from dsv2.file_log.schema import json_schema
from tests.values.awkward import GROUPS, annotation_at, holder_of, value_at


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


def _class_of(name: str, fields: Iterable[tuple[str, Any]]) -> Any:
    optional = [(field, annotation | None) for field, annotation in fields]
    return make_dataclass(name, [("position", int), *optional], frozen=True, namespace={"__module__": __name__})


Wide: Any = _class_of("Wide", _FIELDS.values())
Flat: Any = _class_of("Flat", [field for field in _FIELDS.values() if get_origin(field[1]) not in (list, dict)])


def has_field(kind: Any, position: int) -> bool:
    """Return whether ``kind``, ``Wide`` or ``Flat``, has a field for the value at this position."""
    found = _FIELDS.get(str(annotation_at(position)))
    return found is not None and found[0] in kind.__annotations__


def field_of(position: int) -> str:
    """The name of the field for the value at this position."""
    return _FIELDS[str(annotation_at(position))][0]


def in_one_record(kind: Any, position: int) -> Any:
    """A record with the value at this position. All other fields are None."""
    fields = dict.fromkeys(kind.__annotations__)
    return kind(**{**fields, "position": position, field_of(position): value_at(position)})


class EmitWide(OneInputStreamProcessFunction[int, Any]):
    """Emits records of ``kind`` with the values at the positions that it receives."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def process_record(self, record: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(in_one_record(self.kind, record))


def by_field(rows: Iterable[Mapping[str, Any]]) -> dict[int, Any]:
    """The values by position."""
    return {row["position"]: row[field_of(row["position"])] for row in rows}
