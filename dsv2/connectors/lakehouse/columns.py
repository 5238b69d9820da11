"""The columns of a sink compared with those of its table. Both are described as Spark writes schemas in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from dsv2.errors import SchemaError

Field: TypeAlias = dict[str, Any]

_WIDER = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long",),
    "float": ("double",),
}


def new_columns(own: Sequence[Field], stored: Sequence[Field], *, may_add: bool) -> list[Field]:
    """Return the columns of a sink that its table does not have.

    Args:
        own: The columns of the sink.
        stored: The columns of the table.
        may_add: Whether columns may be added to the table.

    Raises:
        SchemaError: The sink cannot write the table.
    """
    known = {field["name"]: field for field in stored}
    for field in own:
        name = field["name"]
        if name not in known:
            continue
        kind, of_table = _described(field["type"]), _described(known[name]["type"])
        if kind != of_table and of_table not in _WIDER.get(kind, ()):
            raise SchemaError(f"Column {name!r} is {kind} in the sink, and {of_table} in the table.")
        if field["nullable"] and not known[name]["nullable"]:
            raise SchemaError(f"Column {name!r} may be None in the sink, but not in the table.")
    written = {field["name"] for field in own}
    if lacking := [name for name, field in known.items() if name not in written and not field["nullable"]]:
        raise SchemaError(f"The sink does not write the column {lacking[0]!r}, which must not be null in the table.")
    new = [field for field in own if field["name"] not in known]
    if new and not may_add:
        raise SchemaError(
            f"The table has no column {new[0]['name']!r}. It has {', '.join(known)}. Pass merge_schema=True to add it."
        )
    return [{**field, "nullable": True} for field in new]  # rows that exist have no value


def check_key(columns: Sequence[Field], key: Sequence[str]) -> None:
    """Raise ``SchemaError`` if ``key`` does not name columns that can identify a row."""
    types = {field["name"]: field["type"] for field in columns}
    for name in key:
        if name not in types:
            raise SchemaError(f"key names {name!r}, but the columns are {', '.join(types)}.")
        if types[name] in ("float", "double") or not isinstance(types[name], str):
            raise SchemaError(f"key names {name!r}, which is {_described(types[name])}. Rows cannot be found by it.")


def _described(kind: Any) -> str:
    """Return a type as text, without what does not concern values, such as metadata."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "array":
            return f"array<{_described(kind['elementType'])}>"
        case "map":
            return f"map<{_described(kind['keyType'])},{_described(kind['valueType'])}>"
        case _:
            fields = ",".join(f"{field['name']}:{_described(field['type'])}" for field in kind["fields"])
            return f"struct<{fields}>"
