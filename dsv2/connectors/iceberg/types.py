"""Types of Iceberg, and columns as Spark writes them in JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any

from pyiceberg import types as t
from pyiceberg.schema import Schema

from dsv2.connectors.lakehouse.columns import Field

_OF_SPARK: dict[str, t.PrimitiveType] = {
    "boolean": t.BooleanType(),
    "byte": t.IntegerType(),
    "short": t.IntegerType(),
    "integer": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "date": t.DateType(),
    "timestamp": t.TimestamptzType(),
    "timestamp_ntz": t.TimestampType(),
}
_TO_SPARK = tuple(reversed(_OF_SPARK.items()))  # of an integer, the widest comes first
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def iceberg_schema(columns: Sequence[Field]) -> Schema:
    """Return the schema of a new table."""
    return Schema(*_SchemaBuilder().fields(columns))


def iceberg_type(kind: Any) -> t.IcebergType:
    """Return the type of a new column."""
    return _SchemaBuilder().type_of(kind)


def fields_of(schema: t.StructType) -> list[Field]:
    """Return the columns of a table."""
    return [
        {"name": one.name, "type": spark_type(one.field_type), "nullable": not one.required, "metadata": {}}
        for one in schema.fields
    ]


def spark_type(kind: t.IcebergType) -> Any:
    """Return a type as Spark writes it in JSON. Types that Spark does not have keep their names."""
    match kind:
        case t.ListType():
            element = spark_type(kind.element_type)
            return {"type": "array", "elementType": element, "containsNull": not kind.element_required}
        case t.MapType():
            key, value = spark_type(kind.key_type), spark_type(kind.value_type)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": not kind.value_required}
        case t.StructType():
            return {"type": "struct", "fields": fields_of(kind)}
        case t.DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case _:
            return next((name for name, one in _TO_SPARK if one == kind), str(kind))


class _SchemaBuilder:
    """Creates types with numbers that are unique in a schema."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def fields(self, columns: Sequence[Field]) -> list[t.NestedField]:
        numbers = [next(self._numbers) for _ in columns]
        return [
            t.NestedField(number, column["name"], self.type_of(column["type"]), required=not column["nullable"])
            for number, column in zip(numbers, columns, strict=True)
        ]

    def type_of(self, kind: Any) -> t.IcebergType:
        if isinstance(kind, str):
            decimal = _DECIMAL.fullmatch(kind)
            return _OF_SPARK[kind] if decimal is None else t.DecimalType(int(decimal[1]), int(decimal[2]))
        if kind["type"] == "array":
            number = next(self._numbers)
            element = self.type_of(kind["elementType"])
            return t.ListType(number, element, element_required=not kind["containsNull"])
        if kind["type"] == "map":
            numbers = next(self._numbers), next(self._numbers)
            key, value = self.type_of(kind["keyType"]), self.type_of(kind["valueType"])
            return t.MapType(numbers[0], key, numbers[1], value, value_required=not kind["valueContainsNull"])
        return t.StructType(*self.fields(kind["fields"]))
