"""Where reading of a partition begins or ends (Flink ``OffsetsInitializer``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from dsv2.connectors.kafka.split import TopicPartition
from dsv2.errors import ConfigurationError, JobError

__all__ = ("OffsetLookup", "OffsetsInitializer")


class OffsetLookup(Protocol):
    """What the broker knows of offsets. Raises ``JobError`` if it cannot be asked."""

    def earliest(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """The first message that is still there, for each partition."""

    def latest(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """The offset of the next message that will come (of those that a reader may see by now)."""

    def at_time(self, partitions: Collection[TopicPartition], timestamp: int, /) -> Mapping[TopicPartition, int]:
        """The first message at or behind ``timestamp`` in ms; without the partitions where there is none."""

    def committed(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """What the consumer group has committed; without the partitions where it has not."""


class OffsetsInitializer(ABC):
    """Finds an offset for each of some partitions. Made by one of the static methods."""

    @abstractmethod
    def offsets_of(self, partitions: Collection[TopicPartition], lookup: OffsetLookup) -> Mapping[TopicPartition, int]:
        """An offset for each of ``partitions``. Called on the driver when a partition is found. Raises ``JobError``."""

    @property
    def needs_group(self) -> bool:
        """Whether it looks at what a consumer group has committed."""
        return False

    @staticmethod
    def earliest() -> OffsetsInitializer:
        """The first message that is still there."""
        return _Earliest()

    @staticmethod
    def latest() -> OffsetsInitializer:
        """Behind the last message that is there when the partition is found."""
        return _Latest()

    @staticmethod
    def timestamp(timestamp: int) -> OffsetsInitializer:
        """The first message whose timestamp is ``timestamp`` (ms) or later; if there is none, as ``latest``."""
        if isinstance(timestamp, bool) or not isinstance(timestamp, int) or timestamp < 0:
            raise ConfigurationError(f"A timestamp is a whole number of ms since the epoch, not {timestamp!r}.")
        return _AtTime(timestamp)

    @staticmethod
    def committed_offsets(otherwise: OffsetsInitializer | None = None) -> OffsetsInitializer:
        """What the consumer group has committed. While a transaction is about to change that, its end is waited for.

        ``otherwise``: for partitions of which it has committed nothing; without it that is a ``JobError``.
        """
        return _Committed(otherwise)

    @staticmethod
    def offsets(
        offsets: Mapping[tuple[str, int], int], otherwise: OffsetsInitializer | None = None
    ) -> OffsetsInitializer:
        """These offsets, by topic and partition.

        ``otherwise``: for partitions that are not among them, ``earliest()`` if not given.
        """
        for place, offset in offsets.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
                raise ConfigurationError(f"An offset is a whole number of at least 0, not {offset!r} (of {place}).")
        return _Given({TopicPartition(*place): offset for place, offset in offsets.items()}, otherwise or _Earliest())


@dataclass(frozen=True)
class _Earliest(OffsetsInitializer):
    def offsets_of(self, partitions: Collection[TopicPartition], lookup: OffsetLookup) -> Mapping[TopicPartition, int]:
        return lookup.earliest(partitions)


@dataclass(frozen=True)
class _Latest(OffsetsInitializer):
    def offsets_of(self, partitions: Collection[TopicPartition], lookup: OffsetLookup) -> Mapping[TopicPartition, int]:
        return lookup.latest(partitions)


@dataclass(frozen=True)
class _AtTime(OffsetsInitializer):
    timestamp_ms: int

    def offsets_of(self, partitions: Collection[TopicPartition], lookup: OffsetLookup) -> Mapping[TopicPartition, int]:
        return _completed(partitions, lookup.at_time(partitions, self.timestamp_ms), _Latest(), lookup)


@dataclass(frozen=True)
class _Committed(OffsetsInitializer):
    otherwise: OffsetsInitializer | None

    @property
    def needs_group(self) -> bool:
        return True

    def offsets_of(self, partitions: Collection[TopicPartition], lookup: OffsetLookup) -> Mapping[TopicPartition, int]:
        committed = lookup.committed(partitions)
        missing = [partition for partition in partitions if partition not in committed]
        if missing and self.otherwise is None:
            raise JobError(
                f"The consumer group has committed no offset for {', '.join(map(str, missing))}. Say where to begin "
                f"there: OffsetsInitializer.committed_offsets(otherwise=OffsetsInitializer.earliest())."
            )
        return _completed(partitions, committed, self.otherwise, lookup)


@dataclass(frozen=True)
class _Given(OffsetsInitializer):
    offsets_by_partition: Mapping[TopicPartition, int]
    otherwise: OffsetsInitializer

    @property
    def needs_group(self) -> bool:
        return self.otherwise.needs_group

    def offsets_of(self, partitions: Collection[TopicPartition], lookup: OffsetLookup) -> Mapping[TopicPartition, int]:
        return _completed(partitions, self.offsets_by_partition, self.otherwise, lookup)


def _completed(
    partitions: Collection[TopicPartition],
    known: Mapping[TopicPartition, int],
    otherwise: OffsetsInitializer | None,
    lookup: OffsetLookup,
) -> Mapping[TopicPartition, int]:
    missing = [partition for partition in partitions if partition not in known]
    found = {partition: known[partition] for partition in partitions if partition in known}
    return {**found, **otherwise.offsets_of(missing, lookup)} if missing and otherwise is not None else found
