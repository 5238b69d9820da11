"""Matches Avro schemas with record classes, once for each schema, so that reading a record checks nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias, get_args, get_origin

from dsv2.connectors.formats.avro_values import primitive_of
from dsv2.connectors.formats.error import FormatError
from dsv2.connectors.formats.record_classes import ANYTHING, Field, alternatives, fields_of, is_record_class

Schema: TypeAlias = Any
"""A parsed schema: a name, a dict, or a list of schemas."""
Convert: TypeAlias = Callable[[Any], Any]

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


def branches_of(schema: Schema, named: Mapping[str, Any]) -> list[Any]:
    """Return the branches of a union, or the only schema, without names in place of schemas."""
    if isinstance(schema, list):
        return [branch for member in schema for branch in branches_of(member, named)]
    if isinstance(schema, str):
        return branches_of(named[schema], named) if schema in named else [{"type": schema}]
    nested = not isinstance(schema["type"], str) or schema["type"] in named
    return branches_of(schema["type"], named) if nested else [schema]


class Matching(ABC):
    """Walks a type hint and a schema together. The subclasses decide what to convert."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._records: dict[tuple[type, str], Convert] = {}  # classes may refer to themselves

    @abstractmethod
    def convert(self, hint: Any, schema: Schema, place: str) -> Convert | None:
        """Return how values are converted. None: they are not."""

    @abstractmethod
    def _fields(self, kind: type, node: Any) -> Convert:
        """Return how records of the class ``kind``, which may be ``dict``, are converted."""

    @abstractmethod
    def _sequence(self, kind: type[list[Any] | tuple[Any, ...]], items: Convert | None, place: str) -> Convert | None:
        """``kind``: list or tuple."""

    @abstractmethod
    def _map(self, values: Convert | None, place: str) -> Convert | None: ...

    @abstractmethod
    def _enumeration(self, kind: type, node: Any, place: str) -> Convert | None:
        """``kind``: an enumeration, or str."""

    @abstractmethod
    def _primitive(self, node: Any, place: str) -> Convert | None: ...

    def _matched(self, nodes: Iterable[Any], hint: Any, place: str) -> list[tuple[type, Convert | None]]:
        """Return the type of each branch in Python, and how to convert its values."""
        kinds = alternatives(hint)
        return [self._branch(kinds, node, hint, place) for node in nodes]

    def _branch(self, kinds: Sequence[Any], node: Any, hint: Any, place: str) -> tuple[type, Convert | None]:
        match node["type"]:
            case "record" | "error":
                for kind in filter(is_record_class, kinds):
                    return kind, self._record(kind, node)
                if any(_origin(kind) in (*_DICTS, ANYTHING) for kind in kinds):
                    return dict, self._record(dict, node)
            case "array":
                for kind in kinds:
                    if _origin(kind) in (*_LISTS, tuple, ANYTHING):
                        sequence: type[list[Any] | tuple[Any, ...]] = tuple if _origin(kind) is tuple else list
                        items = self.convert((get_args(kind) or (Any,))[0], node["items"], place)
                        return sequence, self._sequence(sequence, items, place)
            case "map":
                for kind in kinds:
                    if _origin(kind) in (*_DICTS, ANYTHING):
                        values = self.convert((get_args(kind) or (str, Any))[1], node["values"], place)
                        return dict, self._map(values, place)
            case "enum":
                for kind in kinds:
                    if isinstance(kind, type) and issubclass(kind, Enum):
                        return kind, self._enumeration(kind, node, place)
                if str in kinds or ANYTHING in kinds:
                    return str, self._enumeration(str, node, place)
            case _:
                type_ = primitive_of(node).type
                if any(kind is ANYTHING or _fits(type_, kind) for kind in kinds):
                    return type_, self._primitive(node, place)
        raise FormatError(f"{place} has the Avro type {_shown(node)}, which does not fit the annotation {_name(hint)}")

    def _record(self, kind: type, node: Any) -> Convert | None:
        key = kind, str(node["name"])
        if key not in self._records:
            self._records[key] = lambda value: self._records[key](value)  # for fields that refer to the class itself
            self._records[key] = self._fields(kind, node)
        return self._records[key]

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
        nodes = branches_of(schema, self._named)
        if any(map(is_record_class, kinds)) and sum(node["type"] in ("record", "map") for node in nodes) > 1:
            raise FormatError(
                f"{place} is a union of several records, which cannot be distinguished. Declare it as dict"
            )
        branches = [(_read_type(kind), convert) for kind, convert in self._matched(nodes, hint, place)]
        types = [kind for kind, _ in branches]
        if any(convert is not None and types.count(kind) > 1 for kind, convert in branches):
            raise FormatError(f"{place} is a union whose values cannot be distinguished. Declare it as object")
        return self._of_union(dict(branches))

    def _of_union(self, by_type: Mapping[type, Convert | None]) -> Convert | None:
        converted = {kind: convert for kind, convert in by_type.items() if convert is not None}
        if not converted:
            return None
        if len(by_type) == 1:
            return next(iter(converted.values()))
        return lambda value: value if (found := converted.get(type(value))) is None else found(value)

    def _record(self, kind: type, node: Any) -> Convert | None:
        return None if kind is dict else super()._record(kind, node)

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
        by_keyword = len(present) < len(declared) or any(
            getattr(field, "kw_only", False) for field in getattr(kind, "__dataclass_fields__", {}).values()
        )
        arguments = []
        for name, convert in converted.items():
            value = f"row[{name!r}]" if convert is None else f"converted[{name!r}](row[{name!r}])"
            arguments.append(f"{name}={value}" if by_keyword else value)
        # Compiled: a loop would cost more than reading.
        make: Convert = eval(f"lambda row: kind({', '.join(arguments)})", {"kind": kind, "converted": converted})
        return make

    def _sequence(self, kind: type[list[Any] | tuple[Any, ...]], items: Convert | None, place: str) -> Convert | None:
        if kind is tuple:
            return tuple if items is None else lambda values: tuple([items(value) for value in values])
        return None if items is None else lambda values: [items(value) for value in values]

    def _map(self, values: Convert | None, place: str) -> Convert | None:
        return None if values is None else lambda items: {key: values(value) for key, value in items.items()}

    def _enumeration(self, kind: type, node: Any, place: str) -> Convert | None:
        return None if kind is str else symbols_of(kind, node, place).__getitem__

    def _primitive(self, node: Any, place: str) -> Convert | None:
        return None


def _read_type(kind: type) -> type:
    """The type as which fastavro reads values of the type ``kind``."""
    if kind is tuple:
        return list
    if is_record_class(kind):
        return dict
    return str if issubclass(kind, Enum) else kind


def symbols_of(kind: type, node: Any, place: str) -> dict[str, Any]:
    """The values of the type ``kind``, str or an enumeration, by symbol: the value or the name of a member."""
    if not issubclass(kind, Enum):
        return {symbol: symbol for symbol in node["symbols"]}
    by_symbol = {**kind.__members__, **{m.value: m for m in kind if isinstance(m.value, str)}}
    unknown = [symbol for symbol in node["symbols"] if symbol not in by_symbol]
    if unknown:
        raise FormatError(f"{place}: {kind.__qualname__} has no member for the symbol {unknown[0]!r} of {node['name']}")
    return {symbol: by_symbol[symbol] for symbol in node["symbols"]}


def _origin(kind: Any) -> Any:
    return get_origin(kind) or kind


def _fits(value: type, kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(value, kind) or (value is int and kind is float))


def _shown(node: Any) -> str:
    name = node.get("name") or node["type"]
    return f"{name} ({node['logicalType']})" if "logicalType" in node else str(name)


def _name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
