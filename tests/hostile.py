"""Decodes hostile bytes in a separate process. The only allowed outcome other than data is ``CorruptDataError``.

``python -m tests.hostile SEED COUNT`` changes whole blobs at random. It prints one line of JSON: how many blobs were
decoded and refused, every other outcome, and the memory of the process.
"""

from __future__ import annotations

import json
import random
import re
import resource
import struct
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from dsv2.arrow.records import records_of
from dsv2.errors import CorruptDataError
from dsv2.runtime.serde import nodes
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.type_registry import TypeRegistry


@dataclass
class Point:
    x: int
    y: float


class Pair(NamedTuple):
    left: Any
    right: Any


class Colour(Enum):
    RED = 1


class Access(Flag):
    READ = 1
    WRITE = 2


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Bag(dict[Any, Any]):
    pass


class Armed:
    """A class of the job's module that records any execution of its code as harm."""

    fired: list[str]

    def __init__(self, *args: Any) -> None:
        _harm("__init__")

    def __call__(self, *args: Any) -> None:
        _harm("__call__")

    def append(self, item: Any) -> None:
        _harm("append")

    extend = add = update = items = append

    def __setattr__(self, name: str, value: Any) -> None:
        _harm("__setattr__")

    def __getattr__(self, name: str) -> Any:
        _harm("__getattr__")

    def __iter__(self) -> Any:
        _harm("__iter__")

    def __len__(self) -> int:
        _harm("__len__")
        return 0


def _harm(name: str) -> None:
    Armed.fired.append(name)


Armed.fired = []

codec = Codec(TypeRegistry([Point, Pair, Colour, Access, Plain, Bag, Armed], [__name__]))

_HARMLESS = ("open", "os.listdir", "os.scandir", "import", "compile", "exec", "marshal.loads", "object.__getattr__")
"""Events of reading modules and time zones from the installation."""


def watched_events() -> list[str]:
    """Python audit events from now on that decoding must not cause."""
    events: list[str] = []
    places = (sys.prefix, sys.base_prefix, "/usr/share/zoneinfo")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event.startswith(("sys._", "cpython.", "gc.", "array.", "code.", "builtins.id")) or event in (
            "object.__setattr__",
            "import",
        ):
            return
        if event in _HARMLESS and (event != "open" or str(args[0]).startswith(places) or "r" in str(args[1])):
            return
        events.append(event)

    sys.addaudithook(hook)
    return events


def samples() -> list[bytes]:
    """Payloads with every kind of node."""
    own: list[Any] = [1]
    own.append(own)
    table = pa.table({"x": [1, 2, 3], "y": [1.5, 2.5, 3.5]})
    paris = datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Paris"))
    values: list[Any] = [None, 1, "text", 1 << 70, "\ud800", [1, "a", None, 1.5, (2,)], {"a": [1], "b": {"c": (1, 2)}}]
    values += [own, [Point(1, 2.0)] * 3, [Pair(Point(1, 1.0), None), Pair(1, 2)], {Colour.RED: Access(3)}]
    values += [Plain([Plain(1)]), Bag(a=1), [{"a": 1, "b": "x"}] * 3, list(range(50)), [0.5] * 50, {1, 2}]
    values += [frozenset("ab"), deque([1], 3), Counter("aab"), defaultdict(list, a=[1]), paris, paris.astimezone(UTC)]
    values += [timedelta(1), Decimal("1.5"), Fraction(1, 3), UUID(int=5), PurePosixPath("a"), range(5), slice(1, 2)]
    values += [1j, int, Point, bytearray(b"abc"), np.arange(5), np.float64(1.5), pd.Timestamp(1), pd.Timedelta(1)]
    values += [table, pa.array([1, None, 3]), [records_of(table, Point)]]
    single = [codec.dumps(value) for value in values]
    shared = [1]
    columns = [values[:8], [Pair(shared, shared), Pair(own, 1)], [(1, 0, "w", 5)], records_of(table, Point)]
    return [*single, codec.dumps_columns(columns), codec.dumps((values, {"state": values}))]


def mutated(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """``data`` with a few changes: of bytes, of parts, or of its tree."""
    if draw.random() < 0.1:
        return _graph(draw)
    if draw.random() < 0.5:
        return _other_tree(data, others, draw)
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place, kind = draw.randrange(len(changed) or 1), draw.randrange(5)
        if kind == 0 and changed:
            changed[place] = draw.randrange(256)
        elif kind == 1:
            del changed[place : place + draw.randint(1, 8)]
        elif kind == 2:
            changed[place:place] = draw.randbytes(draw.randint(1, 8))
        elif kind == 3:
            changed[place : place + 5] = b"\xdd" + struct.pack(">I", draw.choice((0, 1, 1 << 16, (1 << 32) - 1)))
        else:
            other = draw.choice(others)
            start = draw.randrange(len(other))
            changed[place : place + draw.randint(0, 20)] = other[start : start + draw.randint(1, 40)]
    return bytes(changed)


def _graph(draw: random.Random) -> bytes:
    """A graph of up to 60 objects that refer to each other, with a root that may hash them."""
    count = draw.randint(1, 60)
    kind = draw.choice((None, "tuple", "frozenset", "tests.hostile:Pair"))
    runs = [_run(number, kind, draw) for number in range(count)]
    places: list[Any] = [nodes.PLACES, [draw.randrange(count) for _ in range(draw.randint(1, 3))]]
    one = [nodes.ATOMS, [len(places[1])]]
    root = draw.choice(
        (
            places,
            [nodes.SEQUENCES, "frozenset", one, places],
            [nodes.SEQUENCES, "tuple", one, places],
            [nodes.CONTAINERS, "set", None, one, places, None],
            [nodes.CONTAINERS, "dict", None, one, places, places],
        )
    )
    return msgspec.msgpack.encode([nodes.GRAPH, root, runs])


def _run(number: int, kind: str | None, draw: random.Random) -> list[Any]:
    """An object of a graph, of this kind or any, that contains other objects, mostly the one before, twice."""
    inside: list[Any] = [nodes.PLACES, [max(0, number - draw.choice((1, 1, 1, 1, 1, 1, 1, 2))) for _ in range(2)]]
    two = [nodes.ATOMS, [2]]
    field = [nodes.PLACES, inside[1][:1]] if number and draw.random() < 0.98 else [nodes.ATOMS, [1]]
    plain = [nodes.DICTS, [nodes.ATOMS, ["value"]], [field]]
    nodes_by_name: dict[str, Any] = {
        "tuple": [nodes.TUPLES, [field, field]],
        "list": [nodes.CONTAINERS, "list", None, two, inside, None],
        "set": [nodes.CONTAINERS, "set", None, two, inside, None],
        "dict": [nodes.CONTAINERS, "dict", None, two, inside, inside],
        "frozenset": [nodes.SEQUENCES, "frozenset", two, inside],
        "bytearray": [nodes.CONVERTED, "bytearray", field],
        "numpy.ndarray": [nodes.CONVERTED, "numpy.ndarray", [nodes.TUPLES, [field] * 3]],
        "tests.hostile:Point": [nodes.RECORDS, "tests.hostile:Point", ["x", "y"], [field, field]],
        "tests.hostile:Pair": [nodes.RECORDS, "tests.hostile:Pair", ["left", "right"], [field, field]],
        "tests.hostile:Plain": [nodes.OBJECTS, "tests.hostile:Plain", plain],
    }
    name = draw.choice(list(nodes_by_name)) if kind is None else kind
    node = [nodes.ATOMS, [1]] if number == 0 and kind == "tuple" else nodes_by_name[name]
    return [name, [nodes.ATOMS, [None]], 1, node]


_ATOMS: tuple[Callable[[random.Random], Any], ...] = (
    lambda draw: draw.randrange(-3, 25),
    lambda draw: draw.choice((1 << 31, -(1 << 63), (1 << 64) - 1, 1 << 40)),
    lambda draw: draw.choice(
        ("list", "dict", "tuple", "a", "tests.hostile:Armed", "tests.hostile:Plain", "builtins:eval")
    ),
    lambda draw: draw.choice(
        ("numpy.ndarray", "pandas.Timestamp", "pyarrow.Table", "columns.ArrowRecords", "datetime")
    ),
    lambda draw: draw.randbytes(draw.randrange(6)),
    lambda draw: draw.choice((None, True, 1.5, float("nan"), [], {}, [[]], [0, []])),
)


def _other_tree(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    tree = msgspec.msgpack.decode(data)
    for _ in range(draw.randint(1, 3)):
        place = tree
        while isinstance(place, list) and place:
            index = draw.randrange(len(place))
            if isinstance(place[index], list) and draw.random() < 0.8:
                place = place[index]
                continue
            chance = draw.random()
            if chance < 0.4:
                place[index] = _alike(place[index], draw)
            elif chance < 0.6:
                place[index] = msgspec.msgpack.decode(draw.choice(others))
            else:
                place[index] = draw.choice(_ATOMS)(draw)
            break
    return msgspec.msgpack.encode(tree)


def _alike(value: Any, draw: random.Random) -> Any:
    """A value of the same type, which gets furthest."""
    if type(value) is int:
        return max(-(1 << 63), min(value + draw.choice((-256, -1, 1, 2, 1 << 20)), (1 << 64) - 1))
    if type(value) is str:
        return value[: draw.randrange(len(value) + 1)] + draw.choice(("", "0", "é", ":", "\0"))
    if type(value) is bytes and value:
        place = draw.randrange(len(value))
        return value[:place] + draw.randbytes(1) + value[place + draw.randrange(2) :]
    return draw.random() if type(value) is float else None


def main(seed: int, count: int) -> None:
    draw = random.Random(seed)
    payloads = samples()
    for payload in payloads:
        assert decoded(payload) == "decoded"  # all packages are loaded now
    events, outcomes = watched_events(), Counter[str]()
    slowest = 0.0
    for _ in range(count):
        payload = mutated(draw.choice(payloads), payloads, draw)
        start = time.process_time()
        outcomes[decoded(payload)] += 1
        slowest = max(slowest, time.process_time() - start)
    found = {"outcomes": outcomes, "events": list(events), "fired": Armed.fired, "megabytes": _megabytes()}
    print(json.dumps({**found, "slowest_seconds": round(slowest, 3)}))


def _megabytes() -> int:
    """The peak memory of this process. (The value of getrusage includes the process that started it.)"""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20  # bytes on macOS
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) >> 10


def decoded(payload: bytes) -> str:
    """The outcome of a payload with a valid checksum."""
    blob = codec.wrap(BlobKind.STATE, payload)
    outcome = "refused"
    for read in (codec.unseal, codec.unseal_columns):
        try:
            value = read(BlobKind.STATE, blob, "test")
            outcome = "decoded"
            with suppress(AttributeError):  # of an object without a field
                repr(value)
        except CorruptDataError:
            pass
        except BaseException as error:
            return f"{type(error).__name__}: {error}"[:200]
    return outcome


if __name__ == "__main__":
    from tests.hostile import main  # its classes have names that bytes can refer to

    main(int(sys.argv[1]), int(sys.argv[2]))
