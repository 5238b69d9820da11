"""The memory that a large function field takes while the state of its subtask is written and read."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.least_size import least_size
from dsv2.runtime.serde.nested import Nested
from dsv2.runtime.serde.type_registry import TypeRegistry
from tests.support import Driver, driven

MB = 1 << 20


class Holding(OneInputStreamProcessFunction[Any, Any]):
    def __init__(self) -> None:
        self.held: Any = None

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.held = record


def holding(value: Any) -> Driver:
    driver = driven(lambda stream: stream.shuffle().process(Holding()).with_uid("f"))
    driver.send(value)
    driver.frames.clear()
    return driver


def peak(action: Callable[[], Any]) -> tuple[Any, int]:
    """The result of ``action``, and how much more memory than before it took at most."""
    tracemalloc.start()
    try:
        result = action()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (bytearray(40 * MB), 40 * MB),
        (bytes(40 * MB), 40 * MB),
        ({number: bytes(20_000) for number in range(2_000)}, 40_000_000),
        ([str(number).zfill(20_000) for number in range(2_000)], 40_000_000),
    ],
    ids=["bytearray", "bytes", "dict", "list"],
)
def test_large_field_is_in_memory_twice(value: Any, size: int) -> None:
    """As the field, and as its bytes. Either is there before the other one is made, whose memory is counted.

    A buffer reserves half as much again, which is not memory until it is written.
    """
    driver = holding(value)
    for _ in range(2):  # the first snapshot also notices that the field has changed
        blob, taken = peak(driver.subtask.snapshot_in_place)
        assert size < taken < 1.55 * size
    restored: Subtask = driver._new_subtask()
    _, taken = peak(lambda: restored.restore(blob))
    assert size < taken < 1.1 * size
    assert restored.head.operator.uid == "f"


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        b"x" * 1000,
        "ä" * 1000,
        bytearray(1000),
        [bytearray(1000)] * 5,
        [[b"x" * 1000] * 3] * 5,
        {"a": 1, "b": [1.5, 2, None], 3: {"c": ("d" * 500, {4, 5})}},
        {number: [str(number)] for number in range(20_000)},
        list(range(100_000)),
        [True] * 1000,
    ],
    ids=lambda value: str(value)[:20],
)
def test_least_size_is_never_too_large(value: Any) -> None:
    codec = Codec(TypeRegistry())
    size = len(codec.dumps(value))
    assert least_size(value) <= size
    assert least_size(Nested(value)) <= size


def test_least_size_of_large_values_is_close() -> None:
    for value in (dict.fromkeys(range(50000), b"x" * 1000), ["y" * 1000] * 50_000, bytearray(50_000_000)):
        assert 0.9 * 50_000_000 < least_size([{"field": value}]) <= 50_300_000


def test_size_is_checked_before_the_state_is_encoded() -> None:
    driver = holding(bytes(20 * MB))

    def check(size: int) -> None:
        if size > MB:
            raise MemoryError(size)

    def refused() -> None:
        with pytest.raises(MemoryError):
            driver.subtask.snapshot_in_place(check)

    driver.subtask.snapshot()
    assert peak(refused)[1] < MB
