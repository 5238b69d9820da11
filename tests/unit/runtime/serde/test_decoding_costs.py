"""Reading bytes takes time and memory in proportion to them, whatever they describe."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from dsv2.errors import CorruptDataError
from dsv2.runtime.serde import nodes
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.package_values import is_compressed
from dsv2.runtime.serde.type_registry import TypeRegistry

DEPTH = 50  # 2 ** 50 hashes


@dataclass(frozen=True)
class Frozen:
    """A class that was not frozen when its objects were written, so that they are shared."""

    first: Any
    second: Any = None


class Labels(dict[Any, Any]):
    """A dict of the program."""


class Tags(set[Any]):
    """A set of the program."""


codec = Codec(TypeRegistry([Frozen, Labels, Tags]))
FROZEN = f"{__name__}:Frozen"


def read(node: Any) -> Any:
    return codec.loads(msgspec.msgpack.encode(node), "test")


def atoms(*values: Any) -> list[Any]:
    return [nodes.ATOMS, list(values)]


def places(*numbers: int) -> list[Any]:
    return [nodes.PLACES, list(numbers)]


def run(name: str, node: Any) -> list[Any]:
    return [name, atoms(None), 1, node]


def tuples(depth: int) -> list[Any]:
    """Objects of a graph that are tuples: each contains the one before twice."""
    doubled = [run("tuple", [nodes.TUPLES, [places(number), places(number)]]) for number in range(depth)]
    return [run("tuple", [nodes.TUPLES, [atoms(1)]]), *doubled]


def records(depth: int) -> list[Any]:
    """The same with objects of a frozen class."""
    fields = ["first", "second"]
    doubled = [run(FROZEN, [nodes.RECORDS, FROZEN, fields, [places(n), places(n)]]) for n in range(depth)]
    return [run(FROZEN, [nodes.RECORDS, FROZEN, fields, [atoms(1), atoms(2)]]), *doubled]


def same_hashes(count: int) -> list[Any]:
    modulus = (1 << 61) - 1  # of the hashes of numbers
    return [nodes.INTEGERS, [(number * modulus).to_bytes(16, "little", signed=True) for number in range(count)]]


@pytest.mark.parametrize("graph", [tuples(DEPTH), records(DEPTH)], ids=["tuples", "records"])
@pytest.mark.parametrize(
    "root",
    [
        places(DEPTH),
        [nodes.SEQUENCES, "frozenset", atoms(1), places(DEPTH)],
        [nodes.CONTAINERS, "set", None, atoms(1), places(DEPTH), None],
        [nodes.CONTAINERS, "dict", None, atoms(1), places(DEPTH), atoms(1)],
    ],
    ids=["object", "frozenset", "set", "dict"],
)
def test_shared_objects_without_identity(root: Any, graph: list[Any]) -> None:
    with pytest.raises(CorruptDataError):
        read([nodes.GRAPH, root, graph])


def test_shared_object_in_the_parts_of_a_buffer() -> None:
    array = run("numpy.ndarray", [nodes.CONVERTED, "numpy.ndarray", [nodes.TUPLES, [places(0)] * 3]])
    with pytest.raises(CorruptDataError):
        read([nodes.GRAPH, places(0), [array]])


def test_shared_object_of_a_class_that_was_not_frozen() -> None:
    runs = [run(FROZEN, [nodes.RECORDS, FROZEN, ["first", "second"], [atoms(1), atoms(2)]])]
    one, other = read([nodes.GRAPH, [nodes.CONTAINERS, "list", None, atoms(2), places(0, 0), None], runs])
    assert one is other
    assert one == Frozen(1, 2)
    with pytest.raises(CorruptDataError, match="shared by values that are hashed"):
        read([nodes.GRAPH, [nodes.SEQUENCES, "frozenset", atoms(2), places(0, 0)], runs])


@pytest.mark.parametrize(
    "node",
    [
        [nodes.CONTAINERS, "set", None, atoms(40_000), same_hashes(40_000), None],
        [nodes.CONTAINERS, "dict", None, atoms(40_000), same_hashes(40_000), same_hashes(40_000)],
        [nodes.SEQUENCES, "frozenset", atoms(40_000), same_hashes(40_000)],
        [nodes.SUBCLASSES, f"{__name__}:Tags", [nodes.SEQUENCES, "tuple", atoms(40_000), same_hashes(40_000)],
         [nodes.CONTAINERS, "dict", None, atoms(0), atoms(), atoms()]],
        [nodes.SUBCLASSES, f"{__name__}:Labels",
         [nodes.SEQUENCES, "tuple", atoms(40_000), [nodes.TUPLES, [same_hashes(40_000), atoms(*range(40_000))]]],
         [nodes.CONTAINERS, "dict", None, atoms(0), atoms(), atoms()]],
    ],
    ids=["set", "dict", "frozenset", "subclass of set", "subclass of dict"],
)  # fmt: skip
def test_members_with_the_same_hash(node: Any) -> None:
    with pytest.raises(CorruptDataError, match="have the same few hashes"):
        read(node)


def test_contents_of_another_kind_do_not_fill_a_shared_set() -> None:
    contents = [nodes.SEQUENCES, "tuple", atoms(40_000), same_hashes(40_000)]
    with pytest.raises(CorruptDataError, match="is not the contents of a set"):
        read([nodes.GRAPH, places(0), [run("set", contents)]])


@pytest.mark.parametrize(
    "value",
    [
        {number << 40 for number in range(5_000)},
        {Decimal(number) / 8 for number in range(5_000)},
        {(number, str(number)): number for number in range(5_000)},
        frozenset(float(number) for number in range(5_000)),
        Labels({Frozen(number): number for number in range(5_000)}),
        {-1, -2, *range(1_000)},
    ],
    ids=lambda value: type(value).__name__,
)
def test_many_members_of_programs(value: Any) -> None:
    assert codec.loads(codec.dumps(value), "test") == value


def test_keys_of_rows_are_texts() -> None:
    key = [nodes.TUPLES, [atoms("x")] * 2]
    with pytest.raises(CorruptDataError, match="are no strings"):
        read([nodes.DICTS, key, [atoms(*range(10))]])


def stream_of(table: pa.Table, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write(table)
    return bytes(sink.getvalue().to_pybytes())


TABLE = pa.table({"plain": [b"\0" * 1_000_000], "dictionary": pa.array(["x" * 1_000]).dictionary_encode()})


@pytest.mark.parametrize("kind", ["Table", "RecordBatch", "ChunkedArray", "Array"])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_arrow_messages(kind: str, compression: str) -> None:
    table = TABLE if kind in ("Table", "RecordBatch") else TABLE.select(["plain"])
    with pytest.raises(CorruptDataError, match="is compressed"):
        read([nodes.CONVERTED, f"pyarrow.{kind}", atoms(stream_of(table, compression))])


def test_uncompressed_arrow_messages() -> None:
    assert codec.loads(codec.dumps(TABLE), "test") == TABLE
    kinds = [message.metadata.to_pybytes() for message in pa.ipc.MessageReader.open_stream(stream_of(TABLE, None))]
    assert len(kinds) == 3  # the schema, a dictionary and a batch
    assert not any(map(is_compressed, kinds))


def test_empty_texts_of_numpy() -> None:
    for value in (np.str_(""), np.array(["", ""]), np.zeros(2, "<U0")):
        again = codec.loads(codec.dumps(value), "test")
        assert np.array_equal(again, value)
