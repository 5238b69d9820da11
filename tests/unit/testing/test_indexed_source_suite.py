"""Indexed sources that pass the suite for them, and for each of its tests a source that fails it."""

from __future__ import annotations

import threading

import pytest

from dsv2.sources import CollectionSource, DataGeneratorSource, IndexedSource
from dsv2.testing.connectors import IndexedSourceTestSuite


class TestCollection(IndexedSourceTestSuite[str]):
    def create_source(self) -> IndexedSource[str]:
        return CollectionSource([*"abcdefg", "", "a"])


class TestGenerator(IndexedSourceTestSuite[int]):
    def create_source(self) -> IndexedSource[int]:
        return DataGeneratorSource(abs)


class Letters(IndexedSource[str]):
    """Has at most one mistake."""

    def __init__(self) -> None:
        super().__init__(count=8, records_per_batch=None, records_per_second=None)
        self.reads = 0

    def read(self, indices: range) -> list[str]:
        return [chr(ord("a") + index) for index in indices]


class Short(Letters):
    def read(self, indices: range) -> list[str]:
        return super().read(indices)[:6]


class Random(Letters):
    def read(self, indices: range) -> list[str]:
        self.reads += 1
        return [f"{letter}{self.reads}" for letter in super().read(indices)]


class Relative(Letters):
    def read(self, indices: range) -> list[str]:
        return super().read(range(len(indices)))


class Locked(Letters):
    def read(self, indices: range) -> list[str]:
        self.lock = threading.Lock()
        return super().read(indices)


MISTAKES = [
    ("test_range_has_a_record_for_each_index", Short, r"read\(range\(7\)\) returned 6 records"),
    ("test_record_of_an_index_is_always_the_same", Random, "The record at index 3 was 'd1', and later 'd2'"),
    ("test_record_of_an_index_is_always_the_same", Relative, "The record at index 3 was 'd', and later 'a'"),
    ("test_record_of_an_index_is_always_the_same", Locked, "cannot pickle '_thread.lock' object"),
]


@pytest.mark.parametrize(("test", "source", "mistake"), MISTAKES)
def test_mistake_is_found(test: str, source: type[Letters], mistake: str) -> None:
    class Suite(IndexedSourceTestSuite[str]):
        def create_source(self) -> IndexedSource[str]:
            return source()

    with pytest.raises((AssertionError, TypeError), match=mistake):
        getattr(Suite(), test)()


def test_each_test_of_the_suite_can_fail() -> None:
    tests = {name for name in dir(IndexedSourceTestSuite) if name.startswith("test_")}
    assert tests == {test for test, *_ in MISTAKES}
