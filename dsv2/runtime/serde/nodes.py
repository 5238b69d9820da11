"""The trees between Python values and MessagePack.

A column is a sequence of independent values: the records of a frame, the keys of a page, the values of a state. It
becomes a node, ``(tag, ...)``, by the types of its values. Containers become their lengths and the node of all their
members; objects of a class become one node for each field. So the names of classes and fields are written once for a
column, not once for each value, and C functions do what has to be done for each value.

No node names a function or an attribute of anything. What a node can describe is listed here, and a node is never
smaller than a byte for each value that it makes.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Node: TypeAlias = Any
"""A tuple ``(tag, ...)`` on the way out, a list on the way in."""

ATOMS: Final = 0  # values that MessagePack itself distinguishes
NUMBERS: Final = 1  # int or float, an array of MessagePack: many whole numbers of 64 bits, or many floats
INTEGERS: Final = 2  # bytes: whole numbers beyond 64 bits
TEXTS: Final = 3  # bytes: strings with surrogates
MIXED: Final = 4  # a code for each value, a node for each code
TUPLES: Final = 5  # a node for each position: tuples of one length
SEQUENCES: Final = 6  # container name, node of the lengths, node of the members: tuples and frozensets
CONTAINERS: Final = 7  # container name; headers, lengths, members, values of mappings: nodes or None
DICTS: Final = 8  # keys, a node for each key: dicts that have the same strings as keys, in the same order
RECORDS: Final = 9  # class, field names, a node for each
OBJECTS: Final = 10  # class, node of dicts: objects with whatever attributes they have
SUBCLASSES: Final = 11  # class, node of plain values, node of dicts: subclasses of built-in types
ENUMS: Final = 12  # class, node of names, or of numbers for flags
CONVERTED: Final = 13  # converter name, node of what the values are made from
CLASSES: Final = 14  # names
REFERENCES: Final = 15  # kind, names: objects of the runtime
SEPARATE: Final = 16  # bytes: each value encoded by itself, for values in which objects are shared
GRAPH: Final = 17  # node of the value, runs of objects: (kind, headers, count, node)
PLACES: Final = 18  # places in the graph
COLUMNAR: Final = 19  # node of one value that is a whole column
BUFFERS: Final = 20  # bytearrays, as extensions of MessagePack, which are not copied on the way
NESTED: Final = 21  # a node for each value, which is not decoded yet

ATOMIC: Final = frozenset({type(None), bool, int, float, str, bytes})
"""The types of ``ATOMS``."""

MANY: Final = 16
"""So many numbers are written as an array of their own, whose types need not be checked."""

MAX_DEPTH: Final = 64
"""Containers within each other. Deeper values overflow the stacks of those who hash, compare and print them."""

MAX_WIDTH: Final = 64
"""Longer tuples and dicts are written as sequences: a node for each place would cost more than it saves."""
