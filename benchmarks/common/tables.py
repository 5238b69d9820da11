"""A source that generates records in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from benchmarks.common.parts import DealtOut, Part
from dsv2.arrow import records_of
from dsv2.model import RecordBatch
from dsv2.sources import Portion

__all__ = ("GeneratedTables", "Numbers")

T = TypeVar("T")

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_AT_ONCE = 1 << 20


class GeneratedTables(DealtOut[T], Generic[T]):
    """Generates ``count`` records with ``make``, from arrays of indices. A micro-batch has ``per_batch`` records."""

    def __init__(
        self, make: Callable[[Numbers], pa.Table], kind: type[T], count: int, per_batch: int, parallelism: int = 2
    ) -> None:
        super().__init__(parallelism)
        self.make = make
        self.kind = kind
        self.count = count
        self.limit_per_batch = per_batch

    def advance(self, split: Part, limit: int | None) -> Portion[Part] | None:
        stop = min(split.first + self.parallelism * (limit or self.count), self.count + split.subtask)
        if stop <= split.first:
            return None
        number = (stop - split.first) // self.parallelism
        return Portion(replace(split, first=stop), number, last=stop >= self.count)

    def read(self, start: Part, stop: Part) -> Iterator[RecordBatch[T]]:
        step = self.parallelism
        for first in range(start.first, stop.first, step * _AT_ONCE):
            index = np.arange(first, min(stop.first, first + step * _AT_ONCE), step)
            yield RecordBatch(records_of(self.make(index), self.kind))
