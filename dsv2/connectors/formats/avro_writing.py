"""Converts records to what fastavro writes, and refuses values that would not be read as they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from enum import Enum
from functools import partial
from operator import attrgetter
from types import NoneType
from typing import Any

from dsv2.connectors.formats.avro_types import Convert, Matching, Schema, members_of
from dsv2.connectors.formats.avro_values import checked_text, refused, taker_of_primitive
from dsv2.connectors.formats.error import FormatError, shown
from dsv2.connectors.formats.plain_values import plain
from dsv2.connectors.formats.record_classes import Field, alternatives, fields_of

__all__ = ("taker_of",)

_NAMED = ("record", "error", "enum", "fixed")


# Of these types, fastavro writes a value as it is, or fails.
_TRUSTED: Mapping[str, type] = {"boolean": bool, "long": int, "double": float, "bytes": bytes, "string": str}


def taker_of(hint: Any, schema: Schema, named: Mapping[str, Any], *, trusting: bool = False) -> Convert:
    """Return how a value of the type ``hint`` becomes what fastavro writes with ``schema``. See ``reader_of``.

    Args:
        hint: A type hint, such as the record class.
        schema: The parsed schema.
        named: The named schemas to which it refers.
        trusting: Whether to leave the checks that fastavro makes to it. It is faster, but does not name the field.
    """
    return _Writing(named, trusting=trusting).convert(hint, schema, getattr(hint, "__qualname__", str(hint)))


class _Writing(Matching):
    """From records to dicts, with checks."""

    def __init__(self, named: Mapping[str, Any], *, trusting: bool) -> None:
        super().__init__(named)
        self._trusting = trusting

    def convert(self, hint: Any, schema: Schema, place: str) -> Convert:
        nodes = self._branches(schema)
        branches = [self._branch(alternatives(hint), node, hint, place) for node in nodes]
        if not self._is_union(schema):
            return _checked(branches[0][1])
        names = [str(node["name"] if node["type"] in _NAMED else node["type"]) for node in nodes]
        if len(set(names)) < len(names):
            raise FormatError(f"{place} is a union with two branches of the same type, which Avro does not allow")
        return _union(names, branches, place)

    def _is_union(self, schema: Schema) -> bool:
        if isinstance(schema, dict) and not isinstance(schema["type"], str):
            return self._is_union(schema["type"])
        return isinstance(schema, list)

    def _trusted(self, schema: Schema) -> tuple[type, ...]:
        """The types of values that need no check."""
        nodes = self._branches(schema)
        kinds = [_TRUSTED.get(node["type"]) for node in nodes if node["type"] != "null" and "logicalType" not in node]
        if not self._trusting or len(kinds) != 1 or kinds[0] is None or len(nodes) > 2:
            return ()
        return (kinds[0],) if len(nodes) == 1 else (kinds[0], NoneType)

    def _record_type(self, kind: type) -> type:
        return kind

    def _fields(self, kind: type, node: Any) -> Convert:
        name, required = str(node["name"]), {f["name"] for f in node["fields"] if "default" not in f}
        if kind is dict:
            takes = self._converted([Field(f["name"], Any, True) for f in node["fields"]], node, kind)
            return _dict_taker(
                name, [(f["name"], *self._pair(takes[f["name"]], f["type"])) for f in node["fields"]], required
            )
        declared = {field.name: field for field in fields_of(kind)}
        names = [f["name"] for f in node["fields"]]
        if missing := sorted(required - declared.keys()):
            raise FormatError(f"{kind.__qualname__} has no field {missing[0]!r}, which the schema {name} has")
        if extra := [field for field in declared if field not in names]:
            raise FormatError(
                f"the schema {name} has no field {extra[0]!r}, so that the value of {kind.__qualname__}.{extra[0]} "
                f"would be lost. Add the field to the schema, or encode records of a class without it"
            )
        takes = self._converted([declared[name] for name in names if name in declared], node, kind)
        fields = [
            (f["name"], attrgetter(f["name"]), *self._pair(takes[f["name"]], f["type"]))
            for f in node["fields"]
            if f["name"] in takes
        ]

        def take_record(record: Any) -> dict[str, Any]:
            if type(record) is not kind:
                raise FormatError(
                    f"{shown(record, 100)} is a {type(record).__qualname__} and not a {kind.__qualname__}"
                )
            return {
                name: value if type(value := get(record)) in trusted else take(value)
                for name, get, trusted, take in fields
            }

        return take_record

    def _pair(self, take: Convert | None, schema: Schema) -> tuple[tuple[type, ...], Convert]:
        return self._trusted(schema), _checked(take)

    def _list(self, items: Convert | None, place: str) -> Convert:
        return _sequence(list, _checked(items), place)

    def _tuple(self, items: Convert | None, place: str) -> tuple[type, Convert]:
        return tuple, _sequence(tuple, _checked(items), place)

    def _dict(self, values: Convert | None, place: str) -> Convert:
        take = _checked(values)

        def take_map(items: Any) -> dict[str, Any]:
            if not isinstance(items, Mapping):
                raise refused(place, items, "which must be a map")
            return {checked_text(place, key): take(value) for key, value in items.items()}

        return take_map

    def _enumeration(self, kind: type[Enum], node: Any, place: str) -> tuple[type, Convert]:
        return kind, _symbol_taker({m: symbol for symbol, m in members_of(kind, node, place).items()}, node, place)

    def _symbol(self, node: Any, place: str) -> Convert:
        return _symbol_taker({symbol: symbol for symbol in node["symbols"]}, node, place)

    def _primitive(self, node: Any, logical: str | None, place: str) -> Convert:
        return taker_of_primitive(node, logical, place)


def _checked(take: Convert | None) -> Convert:
    assert take is not None  # only readers leave values as they are
    return take


def _dict_taker(schema: str, fields: Sequence[tuple[str, tuple[type, ...], Convert]], required: Set[str]) -> Convert:
    names = {name for name, _, _ in fields}

    def take_dict(row: Any) -> dict[str, Any]:
        if not isinstance(row, Mapping):
            raise FormatError(f"{row!r:.100} is a {type(row).__qualname__} and not a dict")
        taken = {
            name: value if type(value := row[name]) in trusted else take(value)
            for name, trusted, take in fields
            if name in row
        }
        if len(taken) < len(fields) and (missing := sorted(required - row.keys())):
            raise FormatError(f"{row!r:.100} has no field {missing[0]!r}, which the schema {schema} has")
        if len(taken) < len(row):
            extra = next(name for name in row if name not in names)
            raise FormatError(f"the schema {schema} has no field {extra!r}, which {row!r:.100} has")
        return taken

    return take_dict


def _sequence(kind: type[list[Any]] | type[tuple[Any, ...]], take: Convert, place: str) -> Convert:
    def take_sequence(values: Any) -> list[Any]:
        if not isinstance(values, kind):
            raise refused(place, values, f"which is a {type(values).__name__} and not a {kind.__name__}")
        return [take(value) for value in values]

    return take_sequence


def _symbol_taker(symbols: Mapping[Any, str], node: Any, place: str) -> Convert:
    def take_symbol(value: Any) -> str:
        symbol = symbols.get(value) if isinstance(value, str | Enum) else None
        if symbol is None:
            raise refused(place, value, f"which is no symbol of the enum {node['name']}")
        return symbol

    return take_symbol


def _union(names: list[str], branches: list[tuple[type, Convert | None]], place: str) -> Convert:
    """Write a value with the first branch that holds it. fastavro takes a pair of the branch's name and the value."""
    by_type: dict[type, list[Convert]] = {}
    for name, (kind, take) in zip(names, branches, strict=True):
        by_type.setdefault(kind, []).append(partial(_of_branch, name, _checked(take)))
    if float in by_type:
        by_type.setdefault(int, []).extend(by_type[float])
    writes = {kind: takes[0] if len(takes) == 1 else partial(_first, takes) for kind, takes in by_type.items()}
    if NoneType in writes:
        null = "null", None
        writes[NoneType] = lambda value: null

    def take_union(value: Any) -> Any:
        write = writes.get(type(value))
        return _other(value) if write is None else write(value)

    def _other(value: Any) -> Any:
        for kind in type(plain(value)).__mro__:
            if kind in writes:
                return writes[kind](value)
        raise refused(place, value, f"which fits no branch of the union {names}")

    return take_union


def _of_branch(name: str, take: Convert, value: Any) -> tuple[str, Any]:
    return name, take(value)


def _first(takes: list[Convert], value: Any) -> Any:
    for take in takes[:-1]:
        try:
            return take(value)
        except FormatError:
            continue
    return takes[-1](value)
