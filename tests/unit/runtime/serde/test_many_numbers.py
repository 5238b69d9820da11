"""Large containers of numbers are encoded piece by piece, with the same bytes as at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from dsv2.runtime.serde import encoder
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry

COUNT = 34 * 2048 + 5  # the last piece has a short header


def lists(numbers: list[Any]) -> Any:
    return {"few": numbers[:3], "many": numbers[3:65_000], "rest": numbers[65_000:]}


@pytest.mark.parametrize(
    "last", [1, 1.5, True, None, "x", -(1 << 63), (1 << 63) - 1, 1 << 63, 1 << 200, -(1 << 200)], ids=repr
)
@pytest.mark.parametrize(
    "contain",
    [lists, lambda numbers: [[one] for one in numbers], lambda numbers: [tuple(numbers), ()],
     lambda numbers: [deque(numbers)], lambda numbers: dict(enumerate(numbers)),
     lambda numbers: [set(numbers)]],
    ids=["lists", "singles", "tuples", "deque", "mapping", "set"],
)  # fmt: skip
def test_bytes_are_the_same_as_at_once(
    contain: Callable[[list[Any]], Any], last: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = contain([*range(COUNT), last])
    codec = Codec(TypeRegistry())
    in_pieces = codec.dumps(value)
    monkeypatch.setattr(encoder, "_LARGE", 1 << 30)
    assert in_pieces == codec.dumps(value)
    loaded = codec.loads(in_pieces, "value")
    assert loaded == value
    assert isinstance(last, float) or repr(loaded)[-100:] == repr(value)[-100:]


def test_floats_stay_floats() -> None:
    codec = Codec(TypeRegistry())
    value = [[float(number) for number in range(COUNT)]]
    assert set(map(type, codec.loads(codec.dumps(value), "value")[0])) == {float}
