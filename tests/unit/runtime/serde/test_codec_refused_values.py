"""Values that are refused when they are written, and classes that are registered for that reason."""

from __future__ import annotations

import sys
import types
from collections import defaultdict
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from zlib import compressobj
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from dateutil.tz import tzoffset  # type: ignore[import-untyped]

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.graph import RegisteredType
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from tests.codec_classes import CLASSES, OWN, Open, PairAndMore, Plain, Tweet, roundtrip


def test_local_class_keeps_its_identity() -> None:
    @dataclass
    class Local:
        inner: Any

    codec = Codec(TypeRegistry([Local]))
    again = roundtrip(codec, [Local(Local(1)), Local])
    assert again == [Local(Local(1)), Local]
    assert type(again[0]) is Local


def test_classes_of_main_are_found_under_another_main(monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = types.ModuleType("__main__"), types.ModuleType("__main__")
    exec("class Mine:\n    def __init__(self, value):\n        self.value = value", vars(here))
    registry = TypeRegistry([here.Mine])
    monkeypatch.setitem(sys.modules, "__main__", here)
    data = Codec(registry).dumps([here.Mine(1)])
    monkeypatch.setitem(sys.modules, "__main__", elsewhere)
    [mine] = Codec(registry).loads(data, "test")
    assert type(mine) is here.Mine
    assert mine.value == 1


class PicklesItself:
    def __reduce__(self) -> Any:
        return PicklesItself, ()


class Finalized:
    def __del__(self) -> None: ...


class Unknown:
    pass


def with_attribute(value: Any) -> Any:
    value.note = "a"
    return value


class Failing:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise ValueError("my own reason")


REFUSED = Codec(TypeRegistry([PicklesItself, Finalized, Failing, *CLASSES]))
WAY_OUT = r"Store plain values instead, or register how it is converted to plain values: env\.register_type\("


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda: None, f"builtins.function is not a data class: builtins.function is written in C. {WAY_OUT}function"),
        ([sys], "builtins.module is not a data class"),
        (iter(()), "builtins.tuple_iterator is not a data class"),
        (PicklesItself(), rf"PicklesItself defines how it is pickled \(PicklesItself.__reduce__\).* {WAY_OUT}"),
        (Finalized(), rf"it has a finalizer, Finalized.__del__. {WAY_OUT}Finalized"),
        (ValueError("x"), "builtins.ValueError is not a data class"),
        (Failing(), "Failing is not a data class: it hides its attributes"),
        (defaultdict(Plain), "A defaultdict of .*Plain.* cannot be serialized. Use a built-in"),
        (Unknown(), rf"The class {__name__}.Unknown is unknown to the job. Call env.register_type\(Unknown\)."),
        (Unknown, r"Call env.register_type\(Unknown\)."),
        (with_attribute(PairAndMore(1)), "PairAndMore has attributes that are not fields. Declare them as fields."),
        (compressobj(), "zlib.Compress is not a data class: (it has parts that are|zlib.Compress is) written in C"),
        (np.ndarray, "The class numpy.ndarray itself is not data."),
        (ZoneInfo.from_file(files("tzdata.zoneinfo").joinpath("UTC").open("rb")),
         r"A ZoneInfo without a key cannot be serialized. Use ZoneInfo\(key\)."),
        (pd.Timestamp("2024-02-29", tz=tzoffset(None, 3600)),
         r"A timestamp in tzoffset\(None, 3600\) cannot be serialized. Use zoneinfo.ZoneInfo."),
        (np.array([object()]), "An array of object cannot be serialized. Use an array of numbers, times or strings."),
        (pd.DataFrame({"a": [1]}), "pandas.core.frame.DataFrame"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_unserializable_value_is_refused_with_a_remedy(value: Any, reason: str) -> None:
    for around in (value, [1, {"a": value}]):
        with pytest.raises(SerializationError, match=reason):
            REFUSED.dumps(around)


def test_deeply_nested_tuples_are_refused() -> None:
    deep: Any = ()
    for _ in range(1000):
        deep = (deep,)
    with pytest.raises(SerializationError, match="A value nests more than 64 containers, or a tuple contains itself"):
        OWN.dumps(deep)
    assert roundtrip(OWN, [deep_of(60)]) == [deep_of(60)]


def deep_of(depth: int) -> Any:
    deep: Any = 1
    for _ in range(depth):
        deep = (deep,)
    return deep


def test_class_with_the_same_name_is_refused() -> None:
    double: Any = dataclass(type("Tweet", (), {"__module__": Tweet.__module__, "__annotations__": {"topic": str}}))
    with pytest.raises(SerializationError, match="is not the class that the job uses under this name"):
        OWN.dumps(double("a"))


class Money:
    """Constructed in its own way."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __reduce__(self) -> Any:
        raise AssertionError("pickled")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    def __hash__(self) -> int:
        return hash(self.cents)


def test_registered_type() -> None:
    registered = RegisteredType(Money, lambda money: money.cents, Money)
    codec = Codec(TypeRegistry([Tweet], registered=[registered]))
    value = [Money(5), {Money(7): Money(9)}, Tweet("a", 1)]
    assert roundtrip(codec, value) == value
    with pytest.raises(CorruptDataError, match="Money"):
        OWN.loads(codec.dumps(value), "test")


def test_failure_of_a_registered_type_is_named() -> None:
    def take_apart(money: Money) -> int:
        raise ValueError("no cents")

    codec = Codec(TypeRegistry(registered=[RegisteredType(Money, take_apart, Money)]))
    with pytest.raises(SerializationError, match="A value cannot be serialized: no cents"):
        codec.dumps(Money(5))


def test_class_is_found_by_its_former_names() -> None:
    types = TypeRegistry([Tweet, Open, Open.Shade], registered=[RegisteredType(Open, None, None, ("old.shop.Open",))])
    assert types.class_named(f"{Tweet.__module__}.Tweet") is Tweet
    assert types.class_named("old.shop.Open") is Open
    assert types.class_named("old.shop.Open.Shade") is Open.Shade
    assert types.class_named("old.shop.Open.Removed") is None
    assert types.class_named("old.shop.Tweet") is None
