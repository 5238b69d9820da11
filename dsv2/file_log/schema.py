"""The schema of a ``FileSink`` as Spark writes it in JSON, without Spark."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from dsv2.base.optional_types import without_none
from dsv2.errors import SchemaError

_OF_PYTHON: dict[Any, str] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "binary",
    date: "date",
    datetime: "timestamp",
    Decimal: "decimal(38,18)",
}
_OF_DDL = {
    "boolean": "boolean",
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "decimal": "decimal(10,0)",
}
_DIGITS = 38  # of a decimal, for Spark and Parquet
_FOLDER_TYPES = ("boolean", "byte", "short", "integer", "long", "string", "date")
_TOKEN = re.compile(r"\s*(`[^`]+`|\w+|[<>(),:])")


def json_schema(schema: type | str) -> dict[str, Any]:
    """Return the schema of a record class or of Spark's DDL string, as Spark writes it in JSON.

    Raises:
        SchemaError: The class has a field without a column type, or the string is not a schema.
    """
    fields = _Ddl(schema).fields() if isinstance(schema, str) else _of_class(schema)
    return {"type": "struct", "fields": fields}


def fields_of(record_type: type) -> dict[str, Any]:
    """Return the field names and types of a dataclass or NamedTuple class. Raises ``SchemaError`` for other classes."""
    if dataclasses.is_dataclass(record_type):
        names = [field.name for field in dataclasses.fields(record_type) if field.init]
    elif issubclass(record_type, tuple) and hasattr(record_type, "_fields"):
        names = list(record_type._fields)
    else:
        raise SchemaError(
            f"{record_type.__qualname__} has no fields with types. Use a dataclass or a NamedTuple class, "
            f"or a DDL string such as 'topic string, count long'."
        )
    try:
        hints = typing.get_type_hints(record_type)
    except NameError as error:
        raise SchemaError(f"The field types of {record_type.__qualname__} cannot be resolved: {error}.") from error
    return {name: hints.get(name, typing.Any) for name in names}


def check_columns(schema: dict[str, Any], partition_by: Sequence[str]) -> None:
    """Raise ``SchemaError`` if files cannot have the columns of ``schema``, or some of them cannot be folders."""
    types = {field["name"]: field["type"] for field in schema["fields"]}
    spellings: dict[str, str] = {}
    for field in schema["fields"]:
        name = field["name"]
        if (other := spellings.setdefault(name.lower(), name)) != name or len(types) < len(schema["fields"]):
            raise SchemaError(
                f"The columns {other!r} and {name!r} are the same for readers that ignore upper and lower case, such "
                f"as Spark. Rename one."
            )
    for column in partition_by:
        if column not in types:
            raise SchemaError(f"partition_by names {column!r}, but the columns are {', '.join(types)}.")
        if types[column] not in _FOLDER_TYPES:
            kind = types[column] if isinstance(types[column], str) else types[column]["type"]
            raise SchemaError(
                f"partition_by names {column!r}, which is {kind}. Use a column of type bool, int, str or date, such as "
                f"the date of a timestamp."
            )
        if column.startswith(("_", ".")):
            raise SchemaError(
                f"partition_by names {column!r}, but readers skip folders whose names begin with '_' or '.'. Rename it."
            )
    if len(partition_by) == len(types):
        raise SchemaError("partition_by names all columns, so the files would be empty.")


def _of_class(kind: type) -> list[dict[str, Any]]:
    found = []
    for name, hint in fields_of(kind).items():
        plain, nullable = without_none(hint)
        found.append(_field(name, _of_hint(kind, name, plain), nullable=nullable))
    return found


def _field(name: str, kind: Any, *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def _of_hint(owner: type, name: str, hint: Any) -> Any:
    if hint in _OF_PYTHON:
        return _OF_PYTHON[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list and arguments:
        element, nullable = without_none(arguments[0])
        return {"type": "array", "elementType": _of_hint(owner, name, element), "containsNull": nullable}
    if origin is dict and arguments:
        value, nullable = without_none(arguments[1])
        return {
            "type": "map",
            "keyType": _of_hint(owner, name, arguments[0]),
            "valueType": _of_hint(owner, name, value),
            "valueContainsNull": nullable,
        }
    raise SchemaError(
        f"Field {name!r} of {owner.__qualname__} has type {hint}, for which there is no column type. "
        f"Use bool, int, float, str, bytes, date, datetime, Decimal, or list and dict of these, or a DDL string."
    )


class _Ddl:
    """Parses a DDL string, such as ``day date, counts map<string, array<int>> NOT NULL``."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = [*_TOKEN.findall(text), ""]
        if "".join(self._tokens) != re.sub(r"\s+(?=(?:[^`]*`[^`]*`)*[^`]*$)", "", text):
            raise self._error()

    def fields(self) -> list[dict[str, Any]]:
        """Parse the whole string."""
        found = self._fields(colon=False)
        if self._tokens[0]:
            raise self._error()
        return found

    def _fields(self, *, colon: bool) -> list[dict[str, Any]]:
        found = []
        while True:
            name = self._next().strip("`")
            if colon or self._tokens[0] == ":":
                self._expect(":")
            kind = self._type()
            nullable = self._tokens[0].lower() != "not"
            if not nullable:
                self._next()
                self._expect("null")
            found.append(_field(name, kind, nullable=nullable))
            if self._tokens[0] != ",":
                return found
            self._next()

    def _type(self) -> Any:
        name = self._next().lower()
        if name == "array":
            return {"type": "array", "elementType": self._in_brackets(1)[0], "containsNull": True}
        if name == "map":
            key, value = self._in_brackets(2)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if name == "struct":
            self._expect("<")
            fields = self._fields(colon=True)
            self._expect(">")
            return {"type": "struct", "fields": fields}
        if name == "decimal" and self._tokens[0] == "(":
            self._next()
            precision, scale = self._next(), "0"
            if self._tokens[0] == ",":
                self._next()
                scale = self._next()
            self._expect(")")
            if not (precision.isdecimal() and scale.isdecimal() and int(scale) <= int(precision) <= _DIGITS):
                raise SchemaError(f"decimal({precision},{scale}) must have at most {_DIGITS} digits.")
            return f"decimal({precision},{scale})"
        if name not in _OF_DDL:
            raise self._error()
        return _OF_DDL[name]

    def _in_brackets(self, count: int) -> list[Any]:
        self._expect("<")
        found = [self._type()]
        for _ in range(count - 1):
            self._expect(",")
            found.append(self._type())
        self._expect(">")
        return found

    def _next(self) -> str:
        if len(self._tokens) == 1:
            raise self._error()
        return self._tokens.pop(0)

    def _expect(self, token: str) -> None:
        if self._next().lower() != token:
            raise self._error()

    def _error(self) -> SchemaError:
        return SchemaError(
            f"{self._text!r} is not a schema. A schema is a list of columns, such as 'topic string, count long'."
        )
