"""Decodes nodes to columns of values.

Bytes only contain values and their known kinds. Decoding never calls a function named by the bytes, and only sets
attributes of objects that it has just created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any, Final

import msgspec

from dsv2.base.columnar import Columnar, WholeNumbers
from dsv2.errors import CorruptDataError
from dsv2.runtime.serde import nodes
from dsv2.runtime.serde.data_types import DataTypes
from dsv2.runtime.serde.layouts import ClassLayout, EnumLayout, RecordLayout, SubclassLayout
from dsv2.runtime.serde.nested import Undecoded
from dsv2.runtime.serde.nodes import ATOMIC, MAX_DEPTH, Node
from dsv2.runtime.serde.values import CONTAINERS, PLAIN_CLASSES

FEW: Final = 256
"""So many members may have the same hash."""
_SEEDED: Final = frozenset({str, bytes})  # their hashes differ between processes, so that bytes cannot choose them
_OWN_HASHES: Final = range(-(1 << 60), 1 << 60)  # whole numbers with different hashes
_MOST_ALIKE: Final = 16


def check_hashes(members: Sequence[Any]) -> Sequence[Any]:
    """Return ``members``, which will be hashed. Raises ``CorruptDataError`` if too many have the same hash."""
    if len(members) <= FEW:
        return members
    kinds = set(map(type, members))
    if kinds <= _SEEDED or (kinds == {int} and min(members) in _OWN_HASHES and max(members) in _OWN_HASHES):
        return members
    if len(members) > _MOST_ALIKE * len(set(map(hash, members))):
        raise CorruptDataError(f"{len(members)} members of a set or keys of a dict have the same few hashes.")
    return members


_NUMBERS: Final[Mapping[str, Callable[[bytes], list[Any]]]] = {
    "int": msgspec.msgpack.Decoder(list[int]).decode,
    "float": msgspec.msgpack.Decoder(list[float]).decode,
}
_CONTAINERS: Final = {container.name: container for container in CONTAINERS.values()}
_HASHING: Final = frozenset({"dict", "set", "OrderedDict", "Counter", "defaultdict"})
_SEQUENCES: Final[Mapping[str, Callable[[list[Any]], Any]]] = {"tuple": tuple, "frozenset": frozenset}
_FORMS: Final[Mapping[int, type[ClassLayout]]] = {nodes.RECORDS: RecordLayout, nodes.SUBCLASSES: SubclassLayout}


class ColumnDecoder:
    """Decodes nodes to columns.

    Args:
        types: The data classes of the job.
        references: Functions that find a runtime object by name, by kind.
        limit: The maximum number of objects in a graph.
        separate: Decodes the bytes of a separately encoded value. None: not allowed here.
    """

    def __init__(
        self,
        types: DataTypes,
        references: Mapping[str, Callable[[str], Any]],
        limit: int,
        separate: Callable[[bytes], Any] | None = None,
    ) -> None:
        self._layout_named = types.layout_named
        self._converter_named = types.converter_named
        self._references = references
        self._separate = separate
        self._limit = limit
        self._graph: list[Any] = []
        self._unhashed: set[int] = set()  # places in the graph, see _check_places
        self._allows_places = True
        self._hashes = False  # whether what is decoded will be hashed
        self._depth = 0

    def column(self, node: Node) -> Sequence[Any]:
        """Decode a node to a column. Malformed nodes raise ``CorruptDataError`` or any other exception."""
        if node[0] == nodes.COLUMNAR:
            (values,) = self._decode(node[1])
            if not isinstance(values, Columnar | WholeNumbers):
                raise CorruptDataError(f"A {type(values).__qualname__} is not a column.")
            return values
        if node[0] == nodes.SEPARATE and self._separate is not None:
            return list(map(self._separate, node[1]))
        return self._decode(node)

    def _decode(self, node: Node) -> list[Any]:
        if (atoms := atoms_of(node)) is not None:
            return atoms
        self._depth += 1
        if self._depth > 2 * MAX_DEPTH:
            raise CorruptDataError("Values are nested too deeply.")
        decoded = self._DECODERS[node[0]](self, *node[1:])
        self._depth -= 1
        return decoded

    def _numbers(self, kind: str, data: bytes) -> list[Any]:
        if kind not in _NUMBERS:
            raise CorruptDataError(f"{kind!r} is not a type of numbers.")
        return _NUMBERS[kind](data)

    def _integers(self, values: list[bytes]) -> list[Any]:
        return [int.from_bytes(value, "little", signed=True) for value in values]

    def _texts(self, values: list[bytes]) -> list[Any]:
        return [value.decode("utf-8", "surrogatepass") for value in values]

    def _mixed(self, codes: Sequence[int], groups: list[Node]) -> list[Any]:
        columns = list(map(self._decode, groups))
        parts = list(map(iter, columns))
        values = [next(parts[code]) for code in codes]
        if len(values) != sum(map(len, columns)):
            raise CorruptDataError("The number of values of several types does not match their codes.")
        return values

    def _tuples(self, columns: list[Node]) -> list[Any]:
        return list(zip(*map(self._decode, columns), strict=True))

    def _sequences(self, name: str, lengths: Node, members: Node) -> list[Any]:
        if name != "frozenset":
            return list(map(_SEQUENCES[name], _pieces(self._decode(members), self._decode(lengths))))
        return list(map(frozenset, self._hashed_pieces(members, self._decode(lengths))))

    def _containers(
        self, name: str, headers: Node | None, lengths: Node, members: Node, under: Node | None
    ) -> list[Any]:
        container = _CONTAINERS[name]
        sizes = self._decode(lengths)
        if name not in _HASHING:
            pieces: Iterator[Any] = _pieces(self._decode(members), sizes)
        else:
            pieces = self._hashed_pieces(members, sizes)
        if container.is_mapping:
            pieces = map(zip, pieces, _pieces(self._decode(under), sizes))
        if name == "list":
            return list(pieces)
        if name == "dict":
            return list(map(dict, pieces))
        blanks = list(map(container.blank, [None] * len(sizes) if headers is None else self._decode(headers)))
        for blank, piece in zip(blanks, pieces, strict=True):
            container.fill(blank, piece)
        return blanks

    def _buffers(self, values: list[Any]) -> list[Any]:
        if not set(map(type, values)) <= {bytearray, bytes}:
            raise CorruptDataError("Bytearrays are something else.")
        return [value if type(value) is bytearray else bytearray(value) for value in values]

    def _nested(self, values: list[Node]) -> list[Any]:
        return [Undecoded(node, self._limit) for node in values]

    def _dicts(self, keys: Node, columns: list[Node]) -> list[Any]:
        names = self._decode(keys)
        if len(names) != len(columns) or not set(map(type, names)) <= {str}:
            raise CorruptDataError("The keys of dicts are no strings, or differ in number from the values.")
        return list(map(dict, map(zip, repeat(names), zip(*map(self._decode, columns), strict=True))))

    def _records(self, name: str, fields: list[str], columns: list[Node]) -> list[Any]:
        layout = self._layout_named(name, RecordLayout)
        return layout.build(fields, list(map(self._decode, columns)))

    def _objects(self, name: str, attributes: Node) -> list[Any]:
        layout = self._layout_named(name, ClassLayout)
        held = self._decode(attributes)
        values = layout.blanks(len(held))
        layout.assign(values, _dicts_only(held))
        return values

    def _subclasses(self, name: str, plain: Node, attributes: Node) -> list[Any]:
        layout = self._layout_named(name, SubclassLayout)
        values = list(map(layout.build, self._members(layout, plain)))
        layout.assign(values, _dicts_only(self._decode(attributes)))
        return values

    def _enums(self, name: str, members: Node) -> list[Any]:
        layout = self._layout_named(name, EnumLayout)
        return list(map(layout.build, self._decode(members)))

    def _converted(self, name: str, parts: Node) -> list[Any]:
        return self._converter_named(name).build_all(self._decode(parts))

    def _classes(self, names: list[str]) -> list[Any]:
        return [PLAIN_CLASSES.get(name) or self._layout_named(name, ClassLayout).kind for name in names]

    def _named(self, kind: str, names: list[str]) -> list[Any]:
        find = self._references.get(kind)
        if find is None:
            raise CorruptDataError(f"The bytes name a {kind}, which can only be stored in a field of a function.")
        return list(map(find, names))

    def _of_graph(self, root: Node, runs: list[Node]) -> list[Any]:
        counts = [count for _, _, count, _ in runs]
        if self._graph or any(type(count) is not int or count < 1 for count in counts) or sum(counts) > self._limit:
            raise CorruptDataError("The number of objects in a graph is invalid.")
        for name, header, count, node in runs:
            start = len(self._graph)
            self._graph.extend(self._blanks(name, header, count, node))
            if ":" in name and not self._shared(name, node).mutable:
                self._unhashed.update(range(start, len(self._graph)))
        end = len(self._graph)
        for name, _, count, node in reversed(runs):
            blanks, end = self._graph[end - count : end], end - count
            if name in _CONTAINERS or ":" in name:
                self._hashes = end in self._unhashed
                self._fill(name, blanks, node)
        self._hashes = False
        return self._decode(root)

    def _blanks(self, name: str, header: Node, count: int, node: Node) -> list[Any]:
        if name in _CONTAINERS:
            (of_all,) = self._decode(header)
            return [_CONTAINERS[name].blank(of_all) for _ in range(count)]
        if ":" in name:
            return self._shared(name, node).blanks(count)
        if node[0] not in (nodes.CONVERTED, nodes.BUFFERS):
            raise CorruptDataError(f"The bytes share a {name}, whose identity does not matter.")
        self._allows_places = False  # it is built from plain values
        values = self._decode(node)
        self._allows_places = True
        if len(values) != count:
            raise CorruptDataError("The objects of a graph and their contents differ in number.")
        return values

    def _fill(self, name: str, blanks: list[Any], node: Node) -> None:
        """Decode the contents of ``blanks``, to which other objects already refer."""
        container = _CONTAINERS.get(name)
        if container is not None:
            for blank, value in zip(blanks, self._decode(node), strict=True):
                if type(value) is not type(blank):
                    raise CorruptDataError(f"A {type(value).__qualname__} is not the contents of a {name}.")
                container.fill(blank, value)
            return
        layout = self._shared(name, node)
        values = self._decode(node)
        if isinstance(layout, SubclassLayout):
            for blank, value in zip(blanks, values, strict=True):
                layout.fill(blank, layout.plain(value))
        layout.assign(blanks, list(map(layout.attributes, values)))

    def _shared(self, name: str, node: Node) -> ClassLayout:
        """Return the layout of a class of objects to which others may refer. ``node``: Their contents."""
        return self._layout_named(name, _FORMS.get(node[0], ClassLayout), shared=True)

    def _members(self, layout: SubclassLayout, node: Node) -> list[Any]:
        """Decode the plain values of a subclass, which are tuples of members if it is a container."""
        if layout.base is list or not layout.mutable:
            return self._decode(node)
        values = self._hashed(node)
        for members in values:
            if type(members) is tuple and len(members) > FEW:
                is_pair = layout.base is dict and all(type(member) is tuple and member for member in members)
                check_hashes([member[0] for member in members] if is_pair else members)
        return values

    def _hashed_pieces(self, members: Node, sizes: list[int]) -> Iterator[Sequence[Any]]:
        pieces = _pieces(self._hashed(members), sizes)
        return map(check_hashes, pieces) if sizes and max(sizes) > FEW else pieces

    def _hashed(self, node: Node) -> list[Any]:
        """Decode values that will be hashed."""
        before, self._hashes = self._hashes, True
        values = self._decode(node)
        self._hashes = before
        return values

    def _placed(self, places: list[int]) -> list[Any]:
        if not self._allows_places or (places and min(places) < 0):
            raise CorruptDataError("The index of an object in a graph is not valid here.")
        if self._hashes and not self._unhashed.isdisjoint(places):
            # Its hash is computed from its contents, each time and through each path that leads to it.
            raise CorruptDataError("An object of a class without identity is shared by values that are hashed.")
        return list(map(self._graph.__getitem__, places))

    _DECODERS: Final[Mapping[int, Callable[..., list[Any]]]] = {
        nodes.NUMBERS: _numbers,
        nodes.INTEGERS: _integers,
        nodes.TEXTS: _texts,
        nodes.MIXED: _mixed,
        nodes.TUPLES: _tuples,
        nodes.SEQUENCES: _sequences,
        nodes.CONTAINERS: _containers,
        nodes.DICTS: _dicts,
        nodes.RECORDS: _records,
        nodes.OBJECTS: _objects,
        nodes.SUBCLASSES: _subclasses,
        nodes.ENUMS: _enums,
        nodes.CONVERTED: _converted,
        nodes.CLASSES: _classes,
        nodes.REFERENCES: _named,
        nodes.GRAPH: _of_graph,
        nodes.PLACES: _placed,
        nodes.BUFFERS: _buffers,
        nodes.NESTED: _nested,
    }


def atoms_of(node: Node) -> list[Any] | None:
    """Return the values of ``ATOMS``; None for other nodes. Raises ``CorruptDataError`` if they are something else."""
    if node[0] != nodes.ATOMS:
        return None
    values: list[Any] = node[1]
    if type(values) is not list or not ATOMIC.issuperset(map(type, values)):
        raise CorruptDataError("Plain values have an unexpected type.")
    return values


def _dicts_only(values: list[Any]) -> list[Any]:
    if not set(map(type, values)) <= {dict}:
        raise CorruptDataError("Attributes are not a dict.")
    return values


def _pieces(members: list[Any], lengths: list[int]) -> Iterator[list[Any]]:
    """Split ``members`` into pieces of the given ``lengths``."""
    if sum(lengths) != len(members) or (lengths and min(lengths) < 0):
        raise CorruptDataError("The members of containers do not match their lengths.")
    ends = list(accumulate(lengths))
    return map(members.__getitem__, map(slice, [0, *ends], ends))
