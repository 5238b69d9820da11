"""Base classes of sources whose splits an ``AssigningEnumerator`` assigns."""

from __future__ import annotations

from abc import ABC, abstractmethod
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

T_co = TypeVar("T_co", covariant=True)
SplitT = TypeVar("SplitT", bound=SourceSplit)


class AssigningSource(
    Source[T_co, SplitT, AssignmentState[SplitT]], SupportsSplitReassignmentOnRecovery, ABC, Generic[T_co, SplitT]
):
    """A source whose enumerator is an ``AssigningEnumerator``.

    It requires ``bounded``, ``split_serializer``, ``create_discovery`` and ``create_reader``.
    """

    @abstractmethod
    def create_discovery(
        self, ctx: SplitEnumeratorContext[SplitT], restored: AssignmentState[SplitT] | None, /
    ) -> SplitDiscovery[SplitT]:
        """Create the source-specific part of the enumerator. See ``create_enumerator``."""

    @property
    def assigner(self) -> SplitAssigner[SplitT]:
        """The assigner of splits to readers."""
        return HashSplitAssigner()

    @property
    def discovery_interval(self) -> timedelta | None:
        """The interval at which an unbounded source looks for new splits. None: only when the job starts."""
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
            self.create_discovery(ctx, restored),
            self.assigner,
            bounded=self.bounded,
            discovery_interval=self.discovery_interval,
            limit_per_batch=self.limit_per_batch,
            least_per_batch=self.least_per_batch,
        )

    @property
    def enumerator_state_serializer(self) -> Serializer[AssignmentState[SplitT]]:
        return AssignmentStateSerializer(self.split_serializer)


class SplitSource(
    AssigningSource[T_co, SplitT], SplitDiscovery[SplitT], SourceReader[T_co, SplitT], ABC, Generic[T_co, SplitT]
):
    """A source that requires only ``bounded``, ``split_serializer``, ``discover``, ``advance`` and ``read``.

    ``discover``, ``refresh`` and ``advance`` are called on one copy of the source on the driver, ``read`` on other
    copies in tasks. Keep open resources in fields that are not pickled; ``close`` is called on each copy.
    """

    def create_discovery(
        self, ctx: SplitEnumeratorContext[SplitT], restored: AssignmentState[SplitT] | None, /
    ) -> SplitDiscovery[SplitT]:
        return self

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[T_co, SplitT]:
        return self
