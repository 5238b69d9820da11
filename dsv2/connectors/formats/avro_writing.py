"""Converts records to what fastavro writes, and refuses values that would not be read as they were written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from enum import Enum
from typing import Any

from dsv2.connectors.formats.avro_types import Convert, Matching, Schema, branches_of, symbols_of
from dsv2.connectors.formats.avro_values import refused, taker_of_primitive, trusted
from dsv2.connectors.formats.encoder import Encode, with_fast_path
from dsv2.connectors.formats.error import FormatError, shown
from dsv2.connectors.formats.plain_values import plain
from dsv2.connectors.formats.record_classes import Field, alternatives, fields_of, is_record_class

_NAMED = ("record", "error", "enum", "fixed")
_TEXT = {"type": "string"}


def taker_of(hint: Any, schema: Schema, named: Mapping[str, Any]) -> Convert:
    """Return how a value of the type ``hint`` becomes what fastavro writes with ``schema``. See ``reader_of``."""
    return _Writing(named).convert(hint, schema, getattr(hint, "__qualname__", str(hint)))


def with_trusted_records(
    encode: Encode, checked: Encode, hint: Any, schema: Schema, named: Mapping[str, Any]
) -> Encode:
    """Return ``checked``, or a function that calls ``encode`` for records which fastavro writes right without checks.

    Args:
        encode: Encodes a dict.
        checked: Encodes any record.
        hint: A type hint, such as the record class.
        schema: The parsed schema.
        named: The named schemas to which it refers.
    """
    if not isinstance(schema, dict) or schema["type"] != "record":
        return checked
    conditions = {field["name"]: _conditions(branches_of(field["type"], named)) for field in schema["fields"]}
    if is_record_class(hint):
        written = {field.name: conditions[field.name] for field in fields_of(hint)}
        return with_fast_path(encode, checked, hint, written, as_dict=True)
    if any(map(is_record_class, alternatives(hint))):
        return checked
    return with_fast_path(encode, checked, dict, conditions, as_dict=False)


def _conditions(branches: list[Any]) -> list[str]:
    """The conditions under which a value needs no check: it is None, or of the only other branch."""
    others = [branch for branch in branches if branch["type"] != "null"]
    return [] if len(others) > 1 else [text for branch in branches for text in trusted(branch)]


class _Writing(Matching):
    """From records to dicts, with checks."""

    def convert(self, hint: Any, schema: Schema, place: str) -> Convert:
        nodes = branches_of(schema, self._named)
        branches = [(kind, _checked(take)) for kind, take in self._matched(nodes, hint, place)]
        if len(branches) == 1:
            return branches[0][1]
        names = [str(node["name"] if node["type"] in _NAMED else node["type"]) for node in nodes]
        if len(set(names)) < len(names):
            raise FormatError(f"{place} is a union with two branches of the same type, which Avro does not allow")
        return _union(names, branches, place)

    def _fields(self, kind: type, node: Any) -> Convert:
        name, names = str(node["name"]), [f["name"] for f in node["fields"]]
        required = {f["name"] for f in node["fields"] if "default" not in f}
        if kind is dict:
            takes = self._taken([Field(field, Any, True) for field in names], node, kind)
            return _dict_taker(name, takes, required)
        declared = fields_of(kind)
        if missing := sorted(required.difference(field.name for field in declared)):
            raise FormatError(f"{kind.__qualname__} has no field {missing[0]!r}, which the schema {name} has")
        if extra := [field.name for field in declared if field.name not in names]:
            raise FormatError(
                f"the schema {name} has no field {extra[0]!r}, so that the value of {kind.__qualname__}.{extra[0]} "
                f"would be lost. Add the field to the schema, or encode records of a class without it"
            )
        takes = self._taken(declared, node, kind)

        def take_record(record: Any) -> dict[str, Any]:
            if type(record) is not kind:
                raise FormatError(
                    f"{shown(record, 100)} is a {type(record).__qualname__} and not a {kind.__qualname__}"
                )
            return {name: take(getattr(record, name)) for name, take in takes.items()}

        return take_record

    def _taken(self, fields: Iterable[Field], node: Any, kind: type) -> dict[str, Convert]:
        return {name: _checked(take) for name, take in self._converted(fields, node, kind).items()}

    def _sequence(self, kind: type[list[Any] | tuple[Any, ...]], items: Convert | None, place: str) -> Convert:
        take = _checked(items)

        def take_sequence(values: Any) -> list[Any]:
            if not isinstance(values, kind):
                raise refused(place, values, f"which is a {type(values).__name__} and not a {kind.__name__}")
            return [take(value) for value in values]

        return take_sequence

    def _map(self, values: Convert | None, place: str) -> Convert:
        take, take_key = _checked(values), taker_of_primitive(_TEXT, place)

        def take_map(items: Any) -> dict[str, Any]:
            if not isinstance(items, Mapping):
                raise refused(place, items, "which must be a map")
            return {take_key(key): take(value) for key, value in items.items()}

        return take_map

    def _enumeration(self, kind: type, node: Any, place: str) -> Convert:
        symbols = {value: symbol for symbol, value in symbols_of(kind, node, place).items()}

        def take_symbol(value: Any) -> str:
            symbol = symbols.get(value) if isinstance(value, str | Enum) else None
            if symbol is None:
                raise refused(place, value, f"which is no symbol of the enum {node['name']}")
            return symbol

        return take_symbol

    def _primitive(self, node: Any, place: str) -> Convert:
        return taker_of_primitive(node, place)


def _checked(take: Convert | None) -> Convert:
    assert take is not None  # only readers leave values as they are
    return take


def _dict_taker(schema: str, takes: Mapping[str, Convert], required: Set[str]) -> Convert:
    def take_dict(row: Any) -> dict[str, Any]:
        if type(row) is not dict and not isinstance(row, Mapping):
            raise FormatError(f"{shown(row, 100)} is a {type(row).__qualname__} and not a dict")
        taken = {name: take(row[name]) for name, take in takes.items() if name in row}
        if len(taken) < len(takes) and (missing := sorted(required - row.keys())):
            raise FormatError(f"{shown(row, 100)} has no field {missing[0]!r}, which the schema {schema} has")
        if len(taken) < len(row):
            extra = next(name for name in row if name not in takes)
            raise FormatError(f"the schema {schema} has no field {extra!r}, which {shown(row, 100)} has")
        return taken

    return take_dict


def _union(names: Sequence[str], branches: Sequence[tuple[type, Convert]], place: str) -> Convert:
    """Write a value with the first branch that holds it. fastavro takes a pair of the branch's name and the value."""
    by_type: dict[type, list[tuple[str, Convert]]] = {}
    for name, (kind, take) in zip(names, branches, strict=True):
        by_type.setdefault(kind, []).append((name, take))
    if float in by_type:
        by_type.setdefault(int, []).extend(by_type[float])

    def take_union(value: Any) -> tuple[str, Any]:
        takes = by_type.get(type(value))
        if takes is None:
            takes = next((by_type[kind] for kind in type(plain(value)).__mro__ if kind in by_type), [])
        refusal = None
        for name, take in takes:
            try:
                return name, take(value)
            except FormatError as error:
                refusal = error
        raise refusal or refused(place, value, f"which fits no branch of the union {names}")

    return take_union
