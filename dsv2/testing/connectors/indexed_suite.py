"""The tests that every indexed source passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

import cloudpickle

from dsv2.base.type_variables import T
from dsv2.sources import IndexedSource
from dsv2.testing.connectors.suite import fail

_MOST_RECORDS = 20


class IndexedSourceTestSuite(ABC, Generic[T]):
    """The tests of an indexed source. Derive a class whose name begins with ``Test``, and run it with pytest."""

    @abstractmethod
    def create_source(self) -> IndexedSource[T]:
        """Create the source, always with the same options. Give it some ten records."""

    def test_range_has_a_record_for_each_index(self) -> None:
        """As many records as indices."""
        for stop in self._indices():
            if (found := len(self.create_source().read(range(stop)))) != stop:
                fail(f"read(range({stop})) returned {found} records.")

    def test_record_of_an_index_is_always_the_same(self) -> None:
        """The same record, whatever range it is read with, and in each task."""
        source, indices = self.create_source(), self._indices()
        records = source.read(indices)
        for part in (indices[3:], indices[1::2], *(indices[n : n + 1] for n in reversed(indices)), indices):
            source = cloudpickle.loads(cloudpickle.dumps(source))  # as for a task
            for index, record in zip(part, source.read(part), strict=True):
                if record != records[index]:
                    fail(f"The record at index {index} was {records[index]!r}, and later {record!r}.")

    def _indices(self) -> range:
        count = self.create_source().count
        return range(_MOST_RECORDS if count is None else count)
