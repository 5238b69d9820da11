"""A source with splits for tests: each split is a span of numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from dsv2.model import RecordBatch
from dsv2.sources import DataclassSerializer, HashSplitAssigner, Portion, SplitAssigner, SplitSource


@dataclass(frozen=True)
class Span:
    """The numbers from ``position`` up to ``end``, exclusive."""

    name: str
    position: int
    end: int

    @property
    def split_id(self) -> str:
        return self.name


class Item(NamedTuple):
    """One record."""

    span: str
    number: int


def number_of(item: Item) -> int:
    """Return the number of a record, for example as its timestamp."""
    return item.number


class Spans(SplitSource[Item, Span]):
    """``ends``: the number of records of each span, by name."""

    def __init__(
        self,
        ends: Mapping[str, int],
        *,
        bounded: bool = True,
        limit: int | None = None,
        assigner: SplitAssigner[Span] | None = None,
        run: int = 3,
        discovery_interval: timedelta | None = None,
    ) -> None:
        self.ends = dict(ends)
        self._bounded = bounded
        self.limit_per_batch = limit
        self._assigner = assigner
        self._run = run
        self.discovery_interval = discovery_interval

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def split_serializer(self) -> DataclassSerializer[Span]:
        return DataclassSerializer(Span)

    @property
    def assigner(self) -> SplitAssigner[Span]:
        return self._assigner or HashSplitAssigner()

    def discover(self) -> list[Span]:
        return [Span(name, 0, end) for name, end in self.ends.items()]

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        end = split.end if self._bounded else self.ends.get(split.name, split.end)
        stop = end if limit is None else min(end, split.position + limit)
        last = self._bounded and stop == end
        if stop == split.position and not last:
            return None
        return Portion(replace(split, position=stop), stop - split.position, last)

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        for first in range(start.position, stop.position, self._run):
            numbers = range(first, min(first + self._run, stop.position))
            yield RecordBatch([Item(start.name, number) for number in numbers])


def everything(ends: Mapping[str, int]) -> list[Item]:
    """All records of the spans, sorted."""
    return sorted(Item(name, number) for name, end in ends.items() for number in range(end))


def write_ends(file: Path, ends: Mapping[str, int]) -> None:
    """Write the file of ``SpansInFile``. A job that reads it at the same time finds the old or the new ends."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(ends), encoding="utf-8")
    new.replace(file)


class SpansInFile(Spans):
    """Spans whose ends are in a JSON file, which may change while a job runs and between two runs."""

    def __init__(self, file: str, **options: Any) -> None:
        super().__init__({}, bounded=False, **options)
        self.file = file

    def refresh(self) -> None:
        self.ends = json.loads(Path(self.file).read_text())
