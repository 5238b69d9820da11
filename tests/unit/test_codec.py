"""Bytes that outlive a process: what goes in comes out again, and nothing that bytes say can run code."""

from __future__ import annotations

import builtins
import importlib
import operator
import os
import pickle
import subprocess
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dsv2 import CorruptDataError, SerializationError
from dsv2.runtime.codec import FORMAT_VERSION, BlobKind, Codec
from dsv2.runtime.fields import FunctionFields
from dsv2.runtime.keyed_store import PagedKeyedStore
from dsv2.runtime.types import TypeRegistry
from dsv2.sinks import CollectSink
from tests.support import Driver, local_environment, one_input, operator_named, unhurried


@dataclass(frozen=True, slots=True)
class Tweet:
    topic: str
    time: int


@dataclass
class Open:
    anything: Any

    class Shade(Enum):
        DARK = 1


class Pair(NamedTuple):
    left: Any
    right: Any


class Colour(Enum):
    RED = "red"


class Access(Flag):
    READ = 1
    WRITE = 2


class Bag(dict[str, int]):
    """A subclass of a built-in type, with a field besides."""

    def __init__(self, **counts: int) -> None:
        super().__init__(counts)
        self.label = "bag"


OWN = Codec(TypeRegistry([Tweet, Open, Pair, Colour, Open.Shade, Access, Bag]))
PLAIN = Codec(TypeRegistry())


def roundtrip(codec: Codec, value: Any) -> Any:
    return codec.loads(codec.dumps(value), "test")


PLAIN_VALUES: list[Any] = [
    *(None, True, 1, -(1 << 80), 1.5, 1j, "text", "\ud800", b"bytes", bytearray(b"array"), range(3), slice(1, 2)),
    *((1, "a"), [1, [2]], {"a": {1: None}}, {1, 2}, frozenset({3})),
    *(date(2024, 2, 29), time(12, 30), timedelta(days=1, microseconds=1), datetime(2024, 2, 29, 12)),
    *(datetime(2024, 2, 29, 12, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=2)))),
    datetime(2024, 2, 29, 12, tzinfo=ZoneInfo("Europe/Paris")),
    *(Decimal("1.10"), Fraction(1, 3), UUID(int=7), Counter("abca"), OrderedDict(a=1), deque([1], 5), int, str),
]


@pytest.mark.parametrize("value", PLAIN_VALUES, ids=lambda value: repr(value)[:40])
def test_plain_values_need_no_registration(value: Any) -> None:
    again = roundtrip(PLAIN, value)
    assert again == value
    assert type(again) is type(value)


def test_a_default_dict_keeps_its_default() -> None:
    again = roundtrip(PLAIN, defaultdict(list, {"a": [1]}))
    assert again["b"] == []


def test_a_time_zone_is_the_same_object_again() -> None:
    """Else the difference of two times in it would be computed by the clock on the wall no more."""
    zone = ZoneInfo("Europe/Paris")
    assert roundtrip(PLAIN, datetime(2024, 2, 29, tzinfo=zone)).tzinfo is zone


@pytest.mark.parametrize(
    "value",
    [Tweet("a", 1), Open([Tweet("a", 1)]), Pair(1, Pair(2, 3)), Colour.RED, Open.Shade.DARK, Access(3), Bag(a=1)],
    ids=lambda value: repr(value)[:40],
)
def test_values_of_the_jobs_own_classes(value: Any) -> None:
    again = roundtrip(OWN, value)
    assert again == value
    assert type(again) is type(value)
    assert getattr(again, "__dict__", None) == getattr(value, "__dict__", None)


def test_one_object_in_two_places_stays_one() -> None:
    shared = Open([])
    first, second = roundtrip(OWN, [shared, {"again": shared}])
    assert second["again"] is first


def test_bytes_are_those_of_plain_pickle_as_long_as_names_do() -> None:
    """Which is several times as fast as a pickler that asks for every class."""
    value = [Tweet("a", 1), Pair(1, 2)]
    assert OWN.dumps(value) == pickle.dumps(value, 5)


def test_classes_defined_inside_of_functions_keep_their_identity() -> None:
    @dataclass
    class Local:
        inner: Any

    class Kind(Enum):
        A = 1

    codec = Codec(TypeRegistry([Local, Kind]))
    for _ in range(2):  # by name it does not work, and is not tried again
        again = roundtrip(codec, [Local(Local(Kind.A)), Local])
        assert again == [Local(Local(Kind.A)), Local]
        assert again[0].inner.inner is Kind.A


def test_classes_of_the_users_program_travel_to_a_process_with_another_main(monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = types.ModuleType("__main__"), types.ModuleType("__main__")
    exec("class Mine:\n    def __init__(self, value):\n        self.value = value", vars(here))
    registry = TypeRegistry([here.Mine, Tweet])

    monkeypatch.setitem(sys.modules, "__main__", here)
    data = Codec(registry).dumps([here.Mine(1)])
    monkeypatch.setitem(sys.modules, "__main__", elsewhere)
    [mine] = Codec(registry).loads(data, "test")
    assert type(mine) is here.Mine
    assert mine.value == 1

    with pytest.raises(SerializationError, match="Can't pickle"):
        Codec(TypeRegistry()).dumps(mine)
    registry.install()
    assert pickle.loads(pickle.dumps(mine)).value == 1  # noqa: S301 - as a worker does it
    assert not hasattr(elsewhere, "Tweet")


class FailsToPickle:
    def __getstate__(self) -> Any:
        raise ValueError("my own reason")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda: None, "Can't pickle"),
        ([sys], "cannot pickle 'module' object"),
        (FailsToPickle(), "my own reason"),
        (reduce(lambda inner, _: [inner], range(10_000), list[Any]()), "recursion"),
    ],
    ids=["lambda", "module", "own refusal", "deep"],
)
def test_what_cannot_be_bytes_is_a_serialization_error(value: Any, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        OWN.dumps(value)


# --- Bytes that mean harm --------------------------------------------------------------------------------------------


class Calls:
    """Unpickled by anything but our decoder, it calls ``function``."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def naming(module: str, name: str) -> bytes:
    """A pickle that is nothing but this name."""
    texts = b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name))
    return b"\x80\x04" + texts + b"\x93."


FORBIDDEN: list[Any] = [
    *(os.system, subprocess.Popen, eval, exec, builtins.__import__, importlib.import_module, open, type, setattr, vars),
    *(pickle.loads, operator.attrgetter, partial, types.FunctionType, types.CodeType, types.MethodType, Path, super),
]


@pytest.mark.parametrize("harm", FORBIDDEN, ids=lambda harm: harm.__qualname__)
def test_nothing_that_could_run_code_is_resolved(harm: Any) -> None:
    with pytest.raises(CorruptDataError, match=f"^test: The bytes name .*{harm.__name__}, which this job does not"):
        OWN.loads(naming(harm.__module__, harm.__qualname__), "test")


DOTTED = [
    ("builtins", "object.__subclasses__"),
    ("builtins", "str.format"),
    ("datetime", "datetime.__init__.__globals__"),
    ("zoneinfo", "ZoneInfo.no_cache"),
    (__name__, "Tweet.__init__"),
    (__name__, "Tweet.__init__.__globals__"),
    (__name__, "Colour.RED"),
    (__name__, "Open.Shade.__class__"),
    (__name__, "os.system"),
    (__name__, "roundtrip"),
    (__name__, "nowhere"),
    ("no.such.module", "Tweet"),
]


@pytest.mark.parametrize(("module", "name"), DOTTED, ids=map(".".join, DOTTED))
def test_names_lead_to_registered_classes_and_not_beyond(module: str, name: str) -> None:
    codec = Codec(TypeRegistry([Tweet, Colour, Open.Shade], [__name__]))
    with pytest.raises(CorruptDataError, match=r"^test: "):
        codec.loads(naming(module, name), "test")


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Tweet, "__init__"), (Tweet, "__subclasses__"), (ZoneInfo, "__init__"), (ZoneInfo, "from_file"), ("", "format")],
)
def test_the_attribute_that_time_zones_ask_for_is_the_only_one(owner: Any, name: str) -> None:
    data = pickle.dumps(Calls(getattr, owner, name))
    with pytest.raises(CorruptDataError, match=f"^test: The bytes ask for an attribute '{name}'."):
        Codec(TypeRegistry([Tweet, ZoneInfo])).loads(data, "test")


def test_a_class_that_only_shares_the_name_is_not_the_registered_one() -> None:
    double = type("Tweet", (), {"__module__": Tweet.__module__})
    with pytest.raises(SerializationError, match="not the same object"):
        OWN.dumps(double())
    assert OWN.loads(naming(Tweet.__module__, "Tweet"), "test") is Tweet


@pytest.fixture
def harm(tmp_path: Path) -> tuple[Calls, Path]:
    """Something that leaves a file when it is unpickled, and the file."""
    file = tmp_path / "harm"
    calls = Calls(os.system, f"touch {file}")
    pickle.loads(pickle.dumps(calls))  # noqa: S301 - to show what it would do
    assert file.exists(), "it would do no harm at all"
    file.unlink()
    return calls, file


def test_a_harmful_frame_is_refused(harm: tuple[Calls, Path]) -> None:
    calls, file = harm
    blob = OWN.seal(BlobKind.FRAME, ([calls], []))
    with pytest.raises(CorruptDataError, match=r"^A frame: The bytes name (posix|nt).system, which this job does not"):
        OWN.unseal(BlobKind.FRAME, blob, "A frame")
    assert not file.exists()


def counting() -> Any:
    env = local_environment()
    env.from_collection([1]).process(one_input()).with_uid("count").to_sink(CollectSink())
    return env.build_plan()


def test_a_harmful_state_is_refused(harm: tuple[Calls, Path]) -> None:
    calls, file = harm
    with pytest.raises(CorruptDataError, match=r"^State of Process \(uid 'count'\), subtask 0: The bytes name"):
        Driver(counting(), "count").subtask.restore(OWN.seal(BlobKind.STATE, ({"count": calls}, [])))
    assert not file.exists()


def test_a_harmful_page_of_keys_is_refused(harm: tuple[Calls, Path]) -> None:
    calls, file = harm
    store = PagedKeyedStore(OWN, "Keyed state of 'count'")
    store.restore((1, (1, {0: pickle.dumps({"key": calls})}), {}, {}))
    with pytest.raises(CorruptDataError, match=r"^Keyed state of 'count': The bytes name"):
        store.find("key")
    assert not file.exists()


def test_harmful_fields_are_refused(harm: tuple[Calls, Path]) -> None:
    calls, file = harm
    operator = operator_named(counting(), "count")
    with pytest.raises(CorruptDataError, match=r"^Fields of Process \(uid 'count'\): The bytes name"):
        FunctionFields(operator.function, operator, OWN, {}).restore(pickle.dumps(({"field": calls}, [])))
    assert not file.exists()


# --- Bytes that are damaged ------------------------------------------------------------------------------------------

BLOB = OWN.seal(BlobKind.FRAME, ([Tweet("a", 1), Pair(2, None)], [(1, 0, "w", 5)]))


def refusal(blob: bytes) -> str:
    with pytest.raises(CorruptDataError) as caught:
        OWN.unseal(BlobKind.FRAME, blob, "A frame for 'count'")
    owner, _, reason = str(caught.value).partition(": ")
    assert owner == "A frame for 'count'"
    return reason


def test_a_blob_that_is_whole_is_read() -> None:
    assert OWN.unseal(BlobKind.FRAME, BLOB, "test") == ([Tweet("a", 1), Pair(2, None)], [(1, 0, "w", 5)])


def test_every_flipped_bit_is_noticed() -> None:
    for bit in range(8 * len(BLOB)):
        flipped = bytearray(BLOB)
        flipped[bit // 8] ^= 1 << bit % 8
        assert refusal(bytes(flipped))


def test_every_missing_or_added_byte_is_noticed() -> None:
    for length in range(len(BLOB)):
        assert refusal(BLOB[:length])
        assert refusal(BLOB[length + 1 :])
    assert refusal(BLOB + b"\0") == "the bytes are damaged (length or checksum does not fit)."
    assert refusal(BLOB + BLOB) == "the bytes are damaged (length or checksum does not fit)."
    assert refusal(b"") == "0 bytes are too few for a blob."


def test_a_state_is_not_taken_for_a_frame() -> None:
    assert refusal(OWN.seal(BlobKind.STATE, [])) == "these bytes are not a frame of dsv2."


def test_another_format_version_is_named() -> None:
    newer = BLOB[:4] + bytes([FORMAT_VERSION + 1]) + BLOB[5:]
    assert refusal(newer) == (
        f"written in format {FORMAT_VERSION + 1}, this version of dsv2 reads format {FORMAT_VERSION}."
    )


# Two of pickle's instructions reserve memory for as many objects as a number in the bytes says. Bytes that chance upon
# them are caught by the checksum; without it they would bring down the test.
RESERVING = b"rp"
EXAMPLES = [OWN.dumps(value) for value in [*PLAIN_VALUES, Tweet("a", 1), Open(Pair(1, 2)), Access(3), Bag(a=1)]]


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x80\x05", OWN.dumps(Tweet("a", 1))[:-5]])
def test_what_is_no_pickle_is_corrupt_data(data: bytes) -> None:
    with pytest.raises(CorruptDataError, match=r"^test: The bytes cannot be decoded: "):
        OWN.loads(data, "test")


def read(data: bytes) -> None:
    with suppress(CorruptDataError):
        OWN.loads(data, "test")


@unhurried
@given(st.binary(max_size=60))
def test_random_bytes_are_corrupt_data_and_nothing_else(data: bytes) -> None:
    assume(not set(data) & set(RESERVING))
    read(data)
    assert refusal(data)


@unhurried
@given(st.sampled_from(EXAMPLES), st.data())
def test_changed_bytes_are_corrupt_data_and_nothing_else(data: bytes, draw: st.DataObject) -> None:
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        place = draw.draw(st.integers(0, len(data) - 1))
        changed[place] = draw.draw(st.integers(0, 255).filter(lambda byte: byte not in RESERVING))
    assume(not set(changed) & set(RESERVING))
    read(bytes(changed))
