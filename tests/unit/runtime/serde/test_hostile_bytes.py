"""Hostile bytes: reading them gives plain data or ``CorruptDataError``, nothing else."""

from __future__ import annotations

import json
import operator
import subprocess
import sys
from collections import Counter
from functools import partial
from itertools import product
from types import FunctionType
from typing import Any

import msgspec
import pytest

from dsv2.errors import CorruptDataError
from dsv2.runtime.serde import nodes
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.nested import Undecoded
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.fields import FunctionFields
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.sinks import CollectSink
from tests import ROOT, hostile
from tests.hostile import Armed, Pair, Point
from tests.profiles import factor
from tests.support import Driver, local_environment, one_input, operator_named


def atoms(*values: Any) -> list[Any]:
    return [nodes.ATOMS, list(values)]


def load(node: Any, codec: Codec = hostile.codec) -> Any:
    return codec.loads(msgspec.msgpack.encode(node), "test")


@pytest.fixture(autouse=True)
def unharmed() -> Any:
    Armed.fired.clear()
    was = set(vars(Point))
    yield
    assert Armed.fired == []
    assert set(vars(Point)) - was <= {"__slotnames__"}  # a cache of pickle


def registry_of(build: Any) -> TypeRegistry:
    env = local_environment()
    build(env.from_collection([Point(1, 1.0)]))
    return TypeRegistry.of(env.build_plan())


PLANS: list[Any] = [
    lambda stream: stream.map(lambda record: [str(record), partial(max, 1), FunctionType]).to_sink(CollectSink()),
    lambda stream: stream.key_by(operator.attrgetter("x")).process(one_input()),
    lambda stream: stream.key_by(partial(operator.getitem, 0)).process(one_input()),
]
NAMES = [
    *("builtins:eval", "builtins:code", "types:CodeType", "builtins:function", "types:FunctionType", "builtins:type"),
    *("operator:attrgetter", "functools:partial", "os:system", "posix:system", "subprocess:Popen", "builtins:getattr"),
    *("tests.hostile:Point.__init__", "tests.hostile:Armed.append", "tests.hostile:json", "tests.hostile:sys.modules"),
    *(
        "tests.hostile:main",
        "tests.hostile:codec",
        "tests.hostile:Colour.RED",
        "typing:ForwardRef",
        "_operator:attrgetter",
    ),
    *("collections:_tuplegetter", "builtins:super", "", ":", "tests.hostile:", ":Point", "a.b.c:d"),
]
PARTS: list[Any] = [
    atoms(),
    atoms("a"),
    atoms(1),
    [nodes.CONTAINERS, "dict", None, atoms(1), atoms("a"), atoms(1)],
    [],
    None,
]
NAMED = (
    *(nodes.RECORDS, nodes.OBJECTS, nodes.SUBCLASSES, nodes.ENUMS, nodes.CONVERTED, nodes.CLASSES, nodes.CONTAINERS),
    *(nodes.SEQUENCES, nodes.REFERENCES),
)


@pytest.mark.parametrize("plan", range(len(PLANS)))
@pytest.mark.parametrize("name", NAMES)
def test_no_name_resolves_to_a_callable(name: str, plan: int) -> None:
    """Even for plans with functions and callables, whose classes the job registers."""
    codec = Codec(registry_of(PLANS[plan]))
    for tag, first, second in product(NAMED, PARTS, PARTS):
        for node in ([tag, name, first], [tag, name, first, second], [tag, [name]], [tag, name, ["a"], [first]]):
            with pytest.raises(CorruptDataError):
                load(node, codec)


@pytest.mark.parametrize("tag", range(-1, 25))
def test_every_kind_of_node_with_every_kind_of_part(tag: int) -> None:
    names = (
        "tests.hostile:Armed",
        "tests.hostile:Point",
        "tests.hostile:Bag",
        "list",
        "deque",
        "datetime",
        "numpy.ndarray",
    )
    armed = [nodes.OBJECTS, "tests.hostile:Armed", [nodes.CONTAINERS, "dict", None, atoms(0), atoms(), atoms()]]
    parts = [*PARTS, armed, *names, ["x", "y"], [atoms(1), armed], [[nodes.OBJECTS]], b"\1\2", 7]
    for count in range(4):
        for chosen in product(parts, repeat=count):
            try:
                load([tag, *chosen])
            except CorruptDataError:
                continue


def graph(*runs: Any) -> list[Any]:
    return [nodes.GRAPH, [nodes.PLACES, [0]], list(runs)]


def nested(node: Any, depth: int) -> Any:
    for _ in range(depth):
        node = [nodes.TUPLES, [node]]
    return node


HUGE = 1 << 31
ARMED = [nodes.OBJECTS, "tests.hostile:Armed", [nodes.CONTAINERS, "dict", None, atoms(0), atoms(), atoms()]]
NO_ROWS = atoms(0), atoms()
PLAIN, BAG = "tests.hostile:Plain", "tests.hostile:Bag"
AN_ARMED_TUPLE = [nodes.SEQUENCES, "tuple", atoms(1), ARMED]
A_LIST = [nodes.CONTAINERS, "list", None, *NO_ROWS, None]


def converted(name: str, *parts: Any) -> list[Any]:
    return [nodes.CONVERTED, name, [nodes.TUPLES, list(parts)]]


BOMBS: dict[str, Any] = {
    "many objects": graph(["list", atoms(None), HUGE, atoms()]),
    "many objects, and less": graph(["list", atoms(None), HUGE, atoms()], ["list", atoms(None), -HUGE, atoms()]),
    "many empty lists": [nodes.CONTAINERS, "list", None, atoms(HUGE), atoms(), None],
    "lists of less than nothing": [nodes.CONTAINERS, "list", None, atoms(2, -1), atoms(1), None],
    "a wide array": converted("numpy.ndarray", atoms("<i8"), atoms(HUGE), atoms(b"")),
    "an array of objects": converted("numpy.ndarray", atoms("|O"), [nodes.SEQUENCES, "tuple", atoms(1), atoms(1)],
     atoms(b"12345678")),
    "a shape with code": converted("numpy.ndarray", atoms("<i8"), ARMED, atoms(b"12345678")),
    "a fraction that never ends": [nodes.CONVERTED, "Fraction", atoms("1e999999999")],
    "a table that grows": converted("columns.ArrowRecords", [nodes.CLASSES, ["tests.hostile:Point"]], atoms(b"x" * 100),
     atoms(1 << 40), [nodes.SEQUENCES, "tuple", *NO_ROWS]),
    "deep tuples": nested(atoms(1), 150),
    "bytes in bytes": [nodes.SEPARATE, [b"\x92\x10\x91\xc4\x00"]],
    "a graph in a graph": [nodes.GRAPH, graph(["list", atoms(None), 1, atoms()]), [["list", atoms(None), 1, atoms()]]],
    "a time zone that is a file": [nodes.CONVERTED, "ZoneInfo", atoms("../../../etc/passwd")],
    "a zone that pandas would read": converted("pandas.Timestamp", atoms(1), atoms("ns"), atoms("dateutil//etc/hosts")),
    "a moment with code": [nodes.CONVERTED, "datetime", ARMED],
    "attributes from an object": [nodes.OBJECTS, PLAIN, ARMED],
    "members from an object": [nodes.SUBCLASSES, BAG, AN_ARMED_TUPLE, atoms()],
    "a default that is harm": [nodes.CONTAINERS, "defaultdict", [nodes.CLASSES, ["tests.hostile:Armed"]], *NO_ROWS,
     atoms()],
    "a list as a key": [nodes.CONTAINERS, "dict", None, atoms(1), A_LIST, atoms(1)],
    "values that are none": [nodes.ATOMS, [msgspec.msgpack.Ext(1, b"x")]],
    "a moment of MessagePack's own": [nodes.ATOMS, [msgspec.msgpack.Ext(-1, bytes(4))]],
}  # fmt: skip


ONE = [nodes.SEQUENCES, "tuple", atoms(1), atoms(1)]
LETTER = [nodes.SEQUENCES, "tuple", atoms(1), atoms("a")]


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (converted("Fraction", atoms("1"), atoms(2)), "A fraction must consist of two integers"),
        (converted("Fraction", atoms(1), atoms(0)), "A fraction must consist of two integers"),
        (converted("datetime", atoms("2024-02-29"), atoms(0), atoms(1)), "A int is not a time zone"),
        ([nodes.CONVERTED, "pyspark.Row", atoms(1)], "A row must consist of names and values"),
        (converted("pyspark.Row", LETTER, atoms(1)), "A row must consist of names and values"),
        (converted("pyspark.Row", ONE, LETTER), "The field names of a row must be strings"),
        ([nodes.RECORDS, "tests.hostile:Point", ["x", "y"], [atoms(1, 2), atoms(1)]], "Point differ in length"),
        ([nodes.RECORDS, "tests.hostile:Point", ["x", "y"], [atoms(1)]], "Point and their values differ in number"),
        (graph(["Fraction", atoms(None), 2, converted("Fraction", atoms(1), atoms(2))]), "contents differ in number"),
    ],
)
def test_damaged_parts_are_named(node: Any, said: str) -> None:
    with pytest.raises(CorruptDataError, match=said):
        load(node)


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name: str) -> None:
    with pytest.raises(CorruptDataError):
        load(BOMBS[name])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 2_000_000,
        b"\x81" * 100_000,
    ],
    ids=lambda data: str(data[:8]),
)
def test_false_lengths_and_unbounded_arrays_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        hostile.codec.loads(data, "test")


def test_attributes_are_set_on_objects_only() -> None:
    """Whatever the names of the attributes."""
    names = ("__class__", "__dict__", "__reduce__", "append", "x", "")
    pairs = [nodes.CONTAINERS, "dict", None, atoms(len(names)), atoms(*names), atoms(*names)]
    [armed] = [load([nodes.OBJECTS, "tests.hostile:Armed", pairs])]
    assert type(armed) is Armed
    assert object.__getattribute__(armed, "__dict__") == {name: name for name in names}
    assert Counter.__name__ == "Counter"


# --- Each place where bytes are read ---------------------------------------------------------------------------------

CALLED = [nodes.CONVERTED, "os:system", atoms("true")]


def counting() -> Any:
    env = local_environment()
    env.from_collection([1]).process(one_input()).with_uid("count").to_sink(CollectSink())
    return env.build_plan()


def test_hostile_frame_is_refused() -> None:
    blob = hostile.codec.wrap(BlobKind.FRAME, msgspec.msgpack.encode([CALLED, atoms(), atoms()]))
    with pytest.raises(CorruptDataError, match=r"^A frame: The bytes name 'os:system', which is not a converter."):
        hostile.codec.unseal_columns(BlobKind.FRAME, blob, "A frame")


def test_hostile_state_is_refused() -> None:
    blob = hostile.codec.wrap(BlobKind.STATE, msgspec.msgpack.encode(CALLED))
    with pytest.raises(CorruptDataError, match=r"^State of Process \(uid 'count'\), subtask 0: The bytes name"):
        Driver(counting(), "count").subtask.restore(blob)


def test_hostile_page_of_keys_is_refused() -> None:
    store = PagedKeyedStore(hostile.codec, "Keyed state of 'count'")
    page = msgspec.msgpack.encode([atoms("key"), atoms("state"), atoms(), CALLED])
    store.restore((1, (1, {0: page}, 32), {}, 0, {}))
    with pytest.raises(CorruptDataError, match=r"^Keyed state of 'count': The bytes name"):
        store.find("key")


@pytest.mark.parametrize("fields", [msgspec.msgpack.encode(CALLED), Undecoded(CALLED, 100)])
def test_hostile_fields_are_refused(fields: Any) -> None:
    found = operator_named(counting(), "count")
    with pytest.raises(CorruptDataError, match=r"^Fields of Process \(uid 'count'\): The bytes name"):
        FunctionFields(found.function, found, hostile.codec, {}).restore(fields)


def test_other_extensions_of_messagepack_are_refused() -> None:
    data = msgspec.msgpack.encode([nodes.BUFFERS, [msgspec.msgpack.Ext(2, b"x")]])
    with pytest.raises(CorruptDataError, match="2 is not an extension that dsv2 writes"):
        hostile.codec.loads(data, "test")
    with pytest.raises(CorruptDataError, match="Bytearrays are something else"):
        load([nodes.BUFFERS, ["text"]])


# --- Random changes --------------------------------------------------------------------------------------------------


def test_random_changes_give_data_or_an_error() -> None:
    """A separate process reads them, so that a crash or side effect is detected."""
    command = [sys.executable, "-m", "tests.hostile", "7", str(5_000 * factor())]
    report = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert report["outcomes"].keys() == {"decoded", "refused"}
    assert report["events"] == report["fired"] == []
    assert report["megabytes"] < 500
    assert report["slowest_seconds"] < 5


def test_pair_may_hold_armed_values() -> None:
    assert type(load([nodes.RECORDS, "tests.hostile:Pair", ["left", "right"], [ARMED, atoms(1)]])) is Pair
