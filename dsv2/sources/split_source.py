"""A base class for simple sources with splits."""

from __future__ import annotations

from abc import ABC
from datetime import timedelta
from typing import Generic, TypeVar

from dsv2.sources.assigners import HashSplitAssigner, SplitAssigner
from dsv2.sources.assignment import AssigningEnumerator, AssignmentState, AssignmentStateSerializer, SplitDiscovery
from dsv2.sources.serializers import Serializer
from dsv2.sources.source import (
    LEAST_PER_BATCH,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
    SupportsSplitReassignmentOnRecovery,
)

__all__ = ("SplitSource",)

T_co = TypeVar("T_co", covariant=True)
SplitT = TypeVar("SplitT", bound=SourceSplit)


class SplitSource(
    Source[T_co, SplitT, AssignmentState[SplitT]],
    SplitDiscovery[SplitT],
    SourceReader[T_co, SplitT],
    SupportsSplitReassignmentOnRecovery,
    ABC,
    Generic[T_co, SplitT],
):
    """A source that requires only ``bounded``, ``split_serializer``, ``discover``, ``advance`` and ``read``.

    ``discover``, ``refresh`` and ``advance`` are called on one copy of the source on the driver, ``read`` on other
    copies in tasks. Keep open resources in fields that are not pickled; ``close`` is called on each copy.
    """

    @property
    def assigner(self) -> SplitAssigner[SplitT]:
        """The assigner of splits to readers."""
        return HashSplitAssigner()

    @property
    def discovery_interval(self) -> timedelta | None:
        """How often an unbounded source looks for new splits. None: only when the job starts."""
        return None

    @property
    def limit_per_batch(self) -> int | None:
        """See ``SplitEnumerator.limit_per_batch``."""
        return None

    @property
    def least_per_batch(self) -> int:
        """See ``SplitEnumerator.least_per_batch``."""
        return LEAST_PER_BATCH

    def create_enumerator(
        self, ctx: SplitEnumeratorContext[SplitT], restored: AssignmentState[SplitT] | None, /
    ) -> SplitEnumerator[SplitT, AssignmentState[SplitT]]:
        return AssigningEnumerator(
            ctx,
            restored,
            self,
            self.assigner,
            bounded=self.bounded,
            discovery_interval=self.discovery_interval,
            limit_per_batch=self.limit_per_batch,
            least_per_batch=self.least_per_batch,
        )

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[T_co, SplitT]:
        return self

    @property
    def enumerator_state_serializer(self) -> Serializer[AssignmentState[SplitT]]:
        return AssignmentStateSerializer(self.split_serializer)
