"""Records of one class as columns: what makes frames of NamedTuples and dataclasses as cheap as those of tuples.

Pickling each record names its class and its fields again; a frame's records are nearly always of one class.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from itertools import repeat
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any, TypeAlias

from dsv2.columnar import Columnar
from dsv2.errors import CorruptDataError

__all__ = ("Packed", "pack", "unpack")

Packed: TypeAlias = Sequence[Any] | tuple[type, list[Sequence[Any]]]
"""The records themselves, or their class and one sequence per field."""


def pack(records: Sequence[Any]) -> Packed:
    """``records`` for ``unpack``: as columns, if they are all of one class that its field values make again."""
    if isinstance(records, Columnar):
        return records
    kinds = set(map(type, records))
    if len(kinds) != 1:
        return records
    kind = kinds.pop()
    names = _fields_that_make(kind)
    if names is None:
        return records
    if issubclass(kind, tuple):
        return kind, list(zip(*records, strict=True))
    if hasattr(records[0], "__dict__") and set(map(len, map(vars, records))) != {len(names)}:
        return records  # somebody has given a record more than its fields
    try:
        return kind, [list(map(attrgetter(name), records)) for name in names]
    except AttributeError:
        return records  # or less


def unpack(packed: Packed) -> Sequence[Any]:
    """The records of ``pack``. Raises ``CorruptDataError`` if ``packed`` was not made by it."""
    if not isinstance(packed, tuple):
        return packed
    kind, columns = packed
    names = _fields_that_make(kind) if isinstance(kind, type) else None
    if not names or len(names) != len(columns):
        raise CorruptDataError(f"Records of {kind!r} do not travel as columns.")
    if issubclass(kind, tuple):
        # What the class itself does, without a call of a Python function for each record.
        return list(map(tuple.__new__, repeat(kind), zip(*columns, strict=True)))
    setters = _setters(kind, names)
    if setters is None:
        return list(map(kind, *columns))
    records = list(map(object.__new__, repeat(kind, len(columns[0]))))
    for setter, column in zip(setters, columns, strict=True):
        deque(map(setter, records, column), maxlen=0)  # as fast as Python calls anything
    return records


@cache
def _setters(kind: type, names: tuple[str, ...]) -> list[Callable[[Any, Any], None]] | None:
    """What sets each field of a dataclass with slots, frozen or not; None for one without."""
    slots = [slot for name in names if isinstance(slot := vars(kind).get(name), MemberDescriptorType)]
    return [slot.__set__ for slot in slots] if len(slots) == len(names) else None


@cache
def _fields_that_make(kind: type) -> tuple[str, ...] | None:
    """The fields whose values, given to the class in order, make an equal record; None where that is not certain."""
    if issubclass(kind, tuple):
        return _named_tuple_fields(kind)
    if dataclasses.is_dataclass(kind) and kind.__bases__ == (object,):
        return _dataclass_fields(kind)
    return None


def _named_tuple_fields(kind: type) -> tuple[str, ...] | None:
    names: tuple[str, ...] = getattr(kind, "_fields", ())
    plain = kind.__bases__ == (tuple,) and vars(kind).get("__slots__") == () and "__reduce__" not in vars(kind)
    return names if plain and names else None


def _dataclass_fields(kind: type) -> tuple[str, ...] | None:
    own = vars(kind)
    names = tuple(field.name for field in dataclasses.fields(kind) if field.init and not field.kw_only)
    generated = getattr(own.get("__init__"), "__code__", None)
    makes_them_all = (
        generated is not None
        and generated.co_filename == "<string>"  # not written by the user
        and generated.co_argcount == len(names) + 1 == len(dataclasses.fields(kind)) + 1
        and "__post_init__" not in own
    )
    has_own_ways = any(
        getattr(own[name], "__module__", "") != "dataclasses"
        for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__new__")
        if name in own
    )
    return names if makes_them_all and not has_own_ways and names else None
