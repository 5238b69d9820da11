"""A base class of the benchmarks' sources: numbered records, distributed to subtasks in turn."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dsv2.sources import DataclassSerializer, RoundRobinSplitAssigner, Serializer, SplitAssigner, SplitSource

__all__ = ("DealtOut", "Part")

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """The split of one subtask: every n-th record from ``first`` on, where n is the parallelism."""

    subtask: int
    first: int

    @property
    def split_id(self) -> str:
        """The number of the subtask."""
        return str(self.subtask)


class DealtOut(SplitSource[T, Part], ABC, Generic[T]):
    """A bounded source with one split per reader. Subclasses implement ``advance`` and ``read``."""

    def __init__(self, parallelism: int) -> None:
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
        return RoundRobinSplitAssigner()
