"""Encodes columns of values as nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from dsv2.base.columnar import Columnar, WholeNumbers
from dsv2.errors import SerializationError
from dsv2.runtime.serde import nodes
from dsv2.runtime.serde.data_types import DataTypes
from dsv2.runtime.serde.layouts import ClassLayout, EnumLayout, RecordLayout, SubclassLayout, name_of, shown
from dsv2.runtime.serde.nested import Nested, Undecoded
from dsv2.runtime.serde.nodes import ATOMIC, MANY, MAX_DEPTH, MAX_WIDTH, Node
from dsv2.runtime.serde.references import Reference
from dsv2.runtime.serde.values import CONTAINERS, PLAIN_CLASSES, Container, Converter

BUFFER = 1
"""The code of the extension of MessagePack that is a bytearray."""

_INT64 = range(-(1 << 63), 1 << 63)
_NUMERIC = frozenset({int, float})
_LARGE = 1 << 16
_PIECE = 1 << 11
_ARRAY_32 = b"\xdd"  # of MessagePack, before the number of members
_pack = msgspec.msgpack.Encoder().encode


class NoTreeError(Exception):
    """The value has shared or deeply nested objects, which requires a graph instead of a tree."""


class ColumnEncoder:
    """Encodes columns as nodes, provided that mutable objects are not shared.

    ``careful``: whether to look for numbers and strings that MessagePack cannot represent. They are rare, and it
    rejects them, so this is only done in a second attempt.
    """

    def __init__(self, types: DataTypes, careful: bool = False) -> None:
        self.types = types
        self._layout_of = types.layout_of
        self.careful = careful
        self._depth = 0
        self._seen: set[int] = set()

    def column(self, values: Sequence[Any]) -> Node:
        """Encode a column. Raises ``NoTreeError`` or, for values that are not data, ``SerializationError``."""
        self._depth = 0
        if self._seen:
            self._seen.clear()
        if type(values) is list or type(values) is tuple:
            return self._encode(values)
        if isinstance(values, Columnar | WholeNumbers):
            return nodes.COLUMNAR, self._encode((values,))
        return self._encode(list(values))

    def _encode(self, values: Sequence[Any]) -> Node:
        kinds = set(map(type, values))
        if kinds <= ATOMIC:
            if len(values) >= MANY and kinds <= _NUMERIC and len(kinds) == 1:
                return _numbers(kinds.pop(), values)
            return self._atoms(values) if self.careful else (nodes.ATOMS, values)
        if len(kinds) > 1:
            return self._mixed(values)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._too_deep()
        node = self._of_kind(kinds.pop(), values)
        self._depth -= 1
        return node

    def _too_deep(self) -> Exception:
        return NoTreeError()

    def _of_kind(self, kind: type, values: Sequence[Any]) -> Node:
        if kind is tuple:
            return self._tuples(values)
        if kind in CONTAINERS:
            return self._changeable(kind, values)
        if kind is frozenset:
            return self._sequences("frozenset", values)
        if issubclass(kind, Reference):
            return self._references(values)
        if kind is Nested:
            return nodes.NESTED, [node_of(one.value, ColumnEncoder(self.types, self.careful)) for one in values]
        if kind is Undecoded:
            return nodes.NESTED, [one.node for one in values]
        if issubclass(kind, type):
            return nodes.CLASSES, list(map(self._class_name, values))
        how = self._layout_of(kind)
        return self._changeable(kind, values) if how.mutable else self._written_by(how, values)

    def _changeable(self, kind: type, values: Sequence[Any]) -> Node:
        """Values whose identity matters."""
        if self._depth > 1:  # the values of the column itself are independent
            places = set(map(id, values))
            if len(places) < len(values) or not places.isdisjoint(self._seen):
                raise NoTreeError
            self._seen |= places
        return self._contents(kind, values)

    def _contents(self, kind: type, values: Sequence[Any]) -> Node:
        if kind is dict and (rows := self._rows(values)) is not None:
            return rows
        container = CONTAINERS.get(kind)
        if container is not None:
            return self._container(container, values)
        return self._written_by(self._layout_of(kind), values)

    def _written_by(self, how: ClassLayout | Converter, values: Sequence[Any]) -> Node:
        if type(values[0]) is bytearray:
            return nodes.BUFFERS, [Ext(BUFFER, value) for value in values]
        if isinstance(how, Converter):
            return nodes.CONVERTED, how.name, self._encode(list(map(how.take_apart, values)))
        if isinstance(how, EnumLayout):
            return nodes.ENUMS, how.name, self._encode(list(map(how.plain, values)))
        if isinstance(how, RecordLayout) and how.fields and (columns := how.columns(values)) is not None:
            return nodes.RECORDS, how.name, how.fields, list(map(self._encode, columns))
        attributes = self._attributes(how, values)
        if isinstance(how, SubclassLayout):
            return nodes.SUBCLASSES, how.name, self._encode([how.plain(value) for value in values]), attributes
        if isinstance(how, RecordLayout) and how.is_tuple:
            raise SerializationError(f"A {how.name} has attributes that are not fields. Declare them as fields.")
        return nodes.OBJECTS, how.name, attributes

    def _attributes(self, layout: ClassLayout, values: Sequence[Any]) -> Node:
        held = list(map(layout.attributes, values))
        rows = self._rows(held)
        return rows if rows is not None else self._container(CONTAINERS[dict], held)

    def _tuples(self, values: Sequence[Any]) -> Node:
        if len(set(map(len, values))) == 1 and 0 < (width := len(values[0])) <= MAX_WIDTH:
            return nodes.TUPLES, [self._encode(list(map(itemgetter(place), values))) for place in range(width)]
        return self._sequences("tuple", values)

    def _sequences(self, name: str, values: Sequence[Any]) -> Node:
        members = _many_numbers(values) or self._encode(_flat(values))
        return nodes.SEQUENCES, name, self._encode(list(map(len, values))), members

    def _container(self, container: Container, values: Sequence[Any]) -> Node:
        headers = None if container.header is None else self._encode([container.header(value) for value in values])
        lengths = self._encode(list(map(len, values)))
        members = _many_numbers(values) or self._encode(_flat(values))
        under = self._encode(_flat(map(dict.values, values))) if container.is_mapping else None
        return nodes.CONTAINERS, container.name, headers, lengths, members, under

    def _rows(self, values: Sequence[dict[Any, Any]]) -> Node | None:
        """Encode dicts with the same few strings as keys; None for other dicts."""
        first: tuple[Any, ...] = tuple(values[0])
        if len(values) < 2 or not 0 < len(first) <= MAX_WIDTH or type(first[0]) is not str:
            return None
        if set(map(type, chain.from_iterable(values))) != {str}:
            return None
        if len(set(map(tuple, values))) > 1:  # a different order of keys also counts
            return None
        return nodes.DICTS, self._encode(first), [self._encode(list(map(itemgetter(key), values))) for key in first]

    def _mixed(self, values: Sequence[Any]) -> Node:
        places: dict[type, int] = {}
        groups: list[list[Any]] = []
        codes: list[int] = []
        for value in values:
            kind = type(value)
            place = places.get(kind)
            if place is None:
                shared = type(None) if kind in ATOMIC else kind  # all atoms are one group
                place = places.get(shared, len(groups))
                places[kind] = places[shared] = place
                if place == len(groups):
                    groups.append([])
            groups[place].append(value)
            codes.append(place)
        return nodes.MIXED, bytes(codes) if len(groups) <= 256 else codes, list(map(self._encode, groups))

    def _references(self, values: Sequence[Reference]) -> Node:
        return nodes.REFERENCES, values[0].reference_kind, [value.reference_name for value in values]

    def _class_name(self, kind: type) -> str:
        name = name_of(kind)
        if PLAIN_CLASSES.get(name) is not kind and isinstance(self._layout_of(kind), Converter):
            raise SerializationError(f"The class {shown(kind)} itself is not data.")
        return name

    def _atoms(self, values: Sequence[Any]) -> Node:
        """Encode atoms, including values that MessagePack cannot represent."""
        kinds = set(map(type, values))
        if len(kinds) > 1 and not kinds.isdisjoint((int, str)):
            return self._mixed_atoms(values)
        if kinds == {int} and (min(values) not in _INT64 or max(values) not in _INT64):
            return nodes.INTEGERS, list(map(_integer, values))
        if kinds == {str} and not "".join(values).isascii():
            return nodes.TEXTS, [value.encode("utf-8", "surrogatepass") for value in values]
        return nodes.ATOMS, values

    def _mixed_atoms(self, values: Sequence[Any]) -> Node:
        groups: list[list[Any]] = [
            [value for value in values if type(value) is int],
            [value for value in values if type(value) is str],
            [value for value in values if type(value) not in (int, str)],
        ]
        codes = bytes({int: 0, str: 1}.get(type(value), 2) for value in values)
        return nodes.MIXED, codes, [self._atoms(group) for group in groups]


def _flat(containers: Iterable[Iterable[Any]]) -> list[Any]:
    return list(chain.from_iterable(containers))


def _numbers(kind: type, values: Sequence[Any]) -> Node:
    try:
        return nodes.NUMBERS, kind.__name__, _pack(values)
    except OverflowError:
        return nodes.INTEGERS, list(map(_integer, values))


def _many_numbers(containers: Sequence[Collection[Any]]) -> Node | None:
    """Encode the members of containers if they are so many numbers that they do not fit into the CPU cache.

    Otherwise the time is that of the memory: each step over all members waits for most of them. So all steps are done
    with a piece at a time.
    """
    count = sum(map(len, containers))
    if count < _LARGE:
        return None
    found: set[type] = set()
    packed = bytearray(_ARRAY_32 + count.to_bytes(4, "big"))
    try:
        for piece in _pieces(containers):
            found.update(map(type, piece))
            if len(found) > 1 or not found <= _NUMERIC:
                return None
            packed += memoryview(_pack(piece))[_header_size(len(piece)) :]
    except OverflowError:
        return None
    return nodes.NUMBERS, found.pop().__name__, packed


def _pieces(containers: Sequence[Collection[Any]]) -> Iterator[list[Any]]:
    """The members, in lists that fit into the cache. Containers are copied as a whole, which waits least for memory."""
    members: list[Any] = []
    for container in containers:
        members += container
        if len(members) >= _PIECE:
            yield from (members[start : start + _PIECE] for start in range(0, len(members), _PIECE))
            members.clear()
    if members:
        yield members


def _header_size(count: int) -> int:
    """The size of the header of an array of MessagePack with less than 65,536 members."""
    return 1 if count < 16 else 3


def _integer(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


class GraphEncoder(ColumnEncoder):
    """Encodes one value in which objects may be shared or contain themselves."""

    def graph(self, value: Any) -> Node:
        """Encode ``value``."""
        self._depth = 0
        self._objects: list[Any] = []
        self._places: dict[int, int] = {}
        root = self._encode([value])
        runs: list[Node] = []
        done = 0
        while done < len(self._objects):
            end = done + 1
            kind, header = type(self._objects[done]), self._header(self._objects[done])
            while end < len(self._objects) and self._is_alike(self._objects[end], kind, header):
                end += 1
            run = self._objects[done:end]
            self._depth = 0
            runs.append((self._kind_name(kind), self._encode([header]), len(run), self._contents(kind, run)))
            done = end
        return nodes.GRAPH, root, runs

    def _too_deep(self) -> Exception:
        return SerializationError(f"A value nests more than {MAX_DEPTH} containers, or a tuple contains itself.")

    def _changeable(self, kind: type, values: Sequence[Any]) -> Node:
        return nodes.PLACES, list(map(self._place, values))

    def _place(self, value: Any) -> int:
        place = self._places.get(id(value))
        if place is None:
            place = self._places[id(value)] = len(self._objects)
            self._objects.append(value)
        return place

    def _is_alike(self, value: Any, kind: type, header: Any) -> bool:
        return type(value) is kind and self._header(value) == header

    @staticmethod
    def _header(value: Any) -> Any:
        container = CONTAINERS.get(type(value))
        return None if container is None or container.header is None else container.header(value)

    def _kind_name(self, kind: type) -> str:
        container = CONTAINERS.get(kind)
        return self._layout_of(kind).name if container is None else container.name


def node_of(value: Any, encoder: ColumnEncoder) -> Node:
    """Encode one value, as a graph if it has to be."""
    try:
        return encoder.column([value])
    except NoTreeError:
        return GraphEncoder(encoder.types, encoder.careful).graph(value)
