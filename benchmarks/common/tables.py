"""A source that makes its records in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from dsv2.arrow import records_of
from dsv2.sources import (
    DataclassSerializer,
    Portion,
    Records,
    RoundRobinSplitAssigner,
    Serializer,
    SplitAssigner,
    SplitSource,
)

__all__ = ("GeneratedTables", "Numbers")

T = TypeVar("T")

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Part:
    """Every so manieth record, from ``first`` on."""

    subtask: int
    first: int

    @property
    def split_id(self) -> str:
        """One split for each subtask."""
        return str(self.subtask)


class GeneratedTables(SplitSource[T, Part], Generic[T]):
    """What ``make`` makes of the numbers below ``count``; all subtasks together get ``per_batch`` in a micro-batch."""

    def __init__(
        self, make: Callable[[Numbers], pa.Table], kind: type[T], count: int, per_batch: int, parallelism: int = 2
    ) -> None:
        self.make = make
        self.kind = kind
        self.count = count
        self.per_batch = per_batch
        self.parallelism = parallelism

    @property
    def bounded(self) -> bool:
        return True

    @property
    def split_serializer(self) -> Serializer[Part]:
        return DataclassSerializer(Part)

    def discover(self) -> Sequence[Part]:
        return [Part(number, number) for number in range(self.parallelism)]

    @property
    def assigner(self) -> SplitAssigner[Part]:
        return RoundRobinSplitAssigner()  # one for each reader

    @property
    def limit_per_batch(self) -> int | None:
        return self.per_batch

    def advance(self, split: Part, limit: int | None) -> Portion[Part] | None:
        stop = min(split.first + self.parallelism * (limit or self.count), self.count + split.subtask)
        if stop <= split.first:
            return None
        number = (stop - split.first) // self.parallelism
        return Portion(replace(split, first=stop), number, last=stop >= self.count)

    def read(self, start: Part, stop: Part) -> Iterator[Records[T]]:
        step = self.parallelism
        for first in range(start.first, stop.first, step * _AT_ONCE):
            index = np.arange(first, min(stop.first, first + step * _AT_ONCE), step)
            yield Records(records_of(self.make(index), self.kind))
