"""Matches Avro schemas with record classes, once for each schema, so that reading a record checks nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from operator import itemgetter
from types import NoneType
from typing import Any, TypeAlias, get_args, get_origin
from uuid import UUID

from dsv2.connectors.formats.error import FormatError
from dsv2.connectors.formats.record_classes import ANYTHING, Field, alternatives, fields_of, is_record_class

__all__ = ("Convert", "Matching", "Schema", "members_of", "reader_of")

Schema: TypeAlias = Any
"""A parsed schema: a name, a dict, or a list of schemas."""
Convert: TypeAlias = Callable[[Any], Any]

_PRIMITIVES: Mapping[str, type] = {
    "null": NoneType,
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "fixed": bytes,
}
_LOGICAL: Mapping[str, type] = {  # of fastavro; another combination has the values of the primitive type
    "bytes-decimal": Decimal,
    "fixed-decimal": Decimal,
    "string-uuid": UUID,
    "int-date": date,
    "int-time-millis": time,
    "long-time-micros": time,
    "long-timestamp-millis": datetime,
    "long-timestamp-micros": datetime,
    "long-local-timestamp-millis": datetime,
    "long-local-timestamp-micros": datetime,
}
_LISTS: tuple[object, ...] = (list, Sequence, Collection, Iterable)
_DICTS: tuple[object, ...] = (dict, Mapping)


def reader_of(hint: Any, schema: Schema, named: Mapping[str, Any]) -> Convert | None:
    """Return how a value that fastavro has read with ``schema`` becomes a value of the type ``hint``.

    Args:
        hint: A type hint, such as the record class.
        schema: The parsed schema.
        named: The named schemas to which it refers.

    Returns:
        The conversion; None if none is necessary.

    Raises:
        FormatError: The schema does not match. The message names the field.
    """
    return _Reading(named).convert(hint, schema, getattr(hint, "__qualname__", str(hint)))


class Matching:
    """Walks a type hint and a schema together. The subclasses decide what to convert."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._records: dict[tuple[type, str], Convert] = {}  # classes may refer to themselves

    def convert(self, hint: Any, schema: Schema, place: str) -> Convert | None:
        raise NotImplementedError

    def _branches(self, schema: Schema) -> list[Any]:
        if isinstance(schema, list):
            return [branch for member in schema for branch in self._branches(member)]
        if isinstance(schema, str):
            return self._branches(self._named[schema]) if schema in self._named else [{"type": schema}]
        nested = not isinstance(schema["type"], str) or schema["type"] in self._named
        return self._branches(schema["type"]) if nested else [schema]

    def _branch(self, kinds: list[Any], node: Any, hint: Any, place: str) -> tuple[type, Convert | None]:
        """Return the type of the values to convert, and how to convert them."""
        match node["type"]:
            case "record" | "error":
                for kind in filter(is_record_class, kinds):
                    return self._record_type(kind), self._record(kind, node)
                if any((get_origin(kind) or kind) in (*_DICTS, ANYTHING) for kind in kinds):
                    return dict, self._record(dict, node)
            case "array":
                for kind in kinds:
                    if (get_origin(kind) or kind) in (*_LISTS, tuple, ANYTHING):
                        return self._array(kind, node, place)
            case "map":
                for kind in kinds:
                    if (get_origin(kind) or kind) in (*_DICTS, ANYTHING):
                        return dict, self._map(kind, node, place)
            case "enum":
                for kind in kinds:
                    if isinstance(kind, type) and issubclass(kind, Enum):
                        return self._enumeration(kind, node, place)
                if str in kinds or ANYTHING in kinds:
                    return str, self._symbol(node, place)
            case primitive:
                logical = _logical_type(node)
                type_ = _PRIMITIVES[primitive] if logical is None else _LOGICAL.get(logical)
                if type_ is None or any(kind is ANYTHING or _fits(type_, kind) for kind in kinds):
                    return type_ or object, self._primitive(node, logical, place)
        raise FormatError(f"{place} has the Avro type {_shown(node)}, which does not fit the annotation {_name(hint)}")

    def _record(self, kind: type, node: Any) -> Convert | None:
        key = kind, str(node["name"])
        if key not in self._records:
            self._records[key] = lambda value: self._records[key](value)  # for fields that refer to the class itself
            self._records[key] = self._fields(kind, node)
        return self._records[key]

    def _array(self, kind: Any, node: Any, place: str) -> tuple[type, Convert | None]:
        items = self.convert((get_args(kind) or (Any,))[0], node["items"], place)
        return self._tuple(items, place) if (get_origin(kind) or kind) is tuple else (list, self._list(items, place))

    def _map(self, kind: Any, node: Any, place: str) -> Convert | None:
        return self._dict(self.convert((get_args(kind) or (str, Any))[1], node["values"], place), place)

    def _record_type(self, kind: type) -> type:
        raise NotImplementedError

    def _fields(self, kind: type, node: Any) -> Convert:
        raise NotImplementedError

    def _list(self, items: Convert | None, place: str) -> Convert | None:
        raise NotImplementedError

    def _tuple(self, items: Convert | None, place: str) -> tuple[type, Convert | None]:
        raise NotImplementedError

    def _dict(self, values: Convert | None, place: str) -> Convert | None:
        raise NotImplementedError

    def _enumeration(self, kind: type[Enum], node: Any, place: str) -> tuple[type, Convert | None]:
        raise NotImplementedError

    def _symbol(self, node: Any, place: str) -> Convert | None:
        raise NotImplementedError

    def _primitive(self, node: Any, logical: str | None, place: str) -> Convert | None:
        raise NotImplementedError

    def _converted(self, fields: Iterable[Field], node: Any, kind: type) -> dict[str, Convert | None]:
        schemas = {field["name"]: field["type"] for field in node["fields"]}
        owner = str(node["name"]) if kind is dict else kind.__qualname__
        return {f.name: self.convert(f.hint, schemas[f.name], f"{owner}.{f.name}") for f in fields}


class _Reading(Matching):
    """From dicts to records."""

    def convert(self, hint: Any, schema: Schema, place: str) -> Convert | None:
        kinds = alternatives(hint)
        if ANYTHING in kinds:
            return None
        nodes = self._branches(schema)
        if any(map(is_record_class, kinds)) and sum(node["type"] in ("record", "map") for node in nodes) > 1:
            raise FormatError(f"{place} is a union of several records, which cannot be told apart. Declare it as dict")
        branches = [self._branch(kinds, node, hint, place) for node in nodes]
        types = [kind for kind, _ in branches]
        if any(convert is not None and types.count(kind) > 1 for kind, convert in branches):
            raise FormatError(f"{place} is a union whose values cannot be told apart. Declare it as object")
        return self._of_union(dict(branches))

    def _of_union(self, by_type: Mapping[type, Convert | None]) -> Convert | None:
        converted = {kind: convert for kind, convert in by_type.items() if convert is not None}
        if not converted:
            return None
        if len(by_type) == 1:
            return next(iter(converted.values()))
        if set(by_type) - set(converted) == {NoneType} and len(converted) == 1:
            only = next(iter(converted.values()))
            return lambda value: None if value is None else only(value)
        return lambda value: value if (found := converted.get(type(value))) is None else found(value)

    def _record(self, kind: type, node: Any) -> Convert | None:
        return None if kind is dict else super()._record(kind, node)

    def _record_type(self, kind: type) -> type:
        return dict

    def _fields(self, kind: type, node: Any) -> Convert:
        names = [field["name"] for field in node["fields"]]
        declared = fields_of(kind)
        missing = [field.name for field in declared if field.required and field.name not in names]
        if missing:
            raise FormatError(
                f"the schema {node['name']} has no field {missing[0]!r}, which {kind.__qualname__} requires. Give the "
                f"field a default, or give the decoder a reader schema that does"
            )
        present = [field for field in declared if field.name in names]
        converted = self._converted(present, node, kind)
        if present and len(present) == len(declared) and not any(converted.values()):
            return _straight(kind, [field.name for field in present])
        pairs = list(converted.items())
        return lambda row: kind(
            **{name: row[name] if convert is None else convert(row[name]) for name, convert in pairs}
        )

    def _list(self, items: Convert | None, place: str) -> Convert | None:
        return None if items is None else lambda values: [items(value) for value in values]

    def _tuple(self, items: Convert | None, place: str) -> tuple[type, Convert | None]:
        return list, tuple if items is None else lambda values: tuple([items(value) for value in values])

    def _dict(self, values: Convert | None, place: str) -> Convert | None:
        return None if values is None else lambda items: {key: values(value) for key, value in items.items()}

    def _enumeration(self, kind: type[Enum], node: Any, place: str) -> tuple[type, Convert | None]:
        return str, members_of(kind, node, place).__getitem__

    def _symbol(self, node: Any, place: str) -> Convert | None:
        return None

    def _primitive(self, node: Any, logical: str | None, place: str) -> Convert | None:
        return None


def _straight(kind: type, names: Sequence[str]) -> Convert:
    """Create records of ``kind`` from dicts that have exactly its fields, without conversion."""
    if len(names) == 1:
        name = names[0]
        return lambda row: kind(row[name])
    values = itemgetter(*names)
    make = getattr(kind, "_make", None)  # of a NamedTuple
    if make is not None:
        return lambda row: make(values(row))
    if any(getattr(field, "kw_only", False) for field in getattr(kind, "__dataclass_fields__").values()):  # noqa: B009
        return lambda row: kind(**{name: row[name] for name in names})
    return lambda row: kind(*values(row))


def members_of(kind: type[Enum], node: Any, place: str) -> dict[str, Enum]:
    """The members of ``kind`` by symbol, which is the value or the name of a member."""
    by_symbol = {**kind.__members__, **{m.value: m for m in kind if isinstance(m.value, str)}}
    unknown = [symbol for symbol in node["symbols"] if symbol not in by_symbol]
    if unknown:
        raise FormatError(f"{place}: {kind.__qualname__} has no member for the symbol {unknown[0]!r} of {node['name']}")
    return {symbol: by_symbol[symbol] for symbol in node["symbols"]}


def _logical_type(node: Any) -> str | None:
    """The key of the logical type in fastavro; None if there is none, or it has no values of its own."""
    from fastavro.logical_readers import LOGICAL_READERS

    key = f"{node['type']}-{node.get('logicalType')}"
    return key if key in LOGICAL_READERS else None


def _fits(value: type, kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(value, kind) or (value is int and kind is float))


def _shown(node: Any) -> str:
    name = node.get("name") or node["type"]
    return f"{name} ({node['logicalType']})" if "logicalType" in node else str(name)


def _name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
