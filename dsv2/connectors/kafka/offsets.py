"""The offsets at which reading of partitions begins or ends (Flink ``OffsetsInitializer``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from dsv2.connectors.kafka.split import TopicPartition
from dsv2.errors import ConfigurationError, JobError


class OffsetLookup(Protocol):
    """Looks up offsets at the brokers. The methods raise ``JobError`` if the brokers do not answer."""

    def earliest(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """Return the offset of the first available message of each partition."""

    def latest(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """Return the end offset of each partition, as seen by readers under the isolation level."""

    def at_time(self, partitions: Collection[TopicPartition], timestamp: int, /) -> Mapping[TopicPartition, int]:
        """Return the offset of the first message at or after ``timestamp`` (ms). Omits partitions without one."""

    def committed(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """Return the offsets committed by the consumer group. Omits partitions without one."""


class OffsetsInitializer(ABC):
    """Determines an offset for each partition. Created by the static methods.

    Source: Flink ``OffsetsInitializer``.
    """

    @abstractmethod
    def offsets_of(self, partitions: Collection[TopicPartition], lookup: OffsetLookup) -> Mapping[TopicPartition, int]:
        """Return an offset for each partition. Called on the driver when partitions are discovered.

        Args:
            partitions: The new partitions.
            lookup: Looks up offsets at the brokers.

        Raises:
            JobError: The brokers do not answer, or the consumer group has no offset for a partition.
        """

    @property
    def needs_group(self) -> bool:
        """True if the offsets depend on those committed by a consumer group."""
        return False

    @property
    def named(self) -> Collection[TopicPartition]:
        """The partitions that must exist when the job first starts."""
        return ()

    @staticmethod
    def earliest() -> OffsetsInitializer:
        """Start at the first available message."""
        return _Earliest()

    @staticmethod
    def latest() -> OffsetsInitializer:
        """Start after the last message that exists when the partition is discovered."""
        return _Latest()

    @staticmethod
    def timestamp(timestamp: int) -> OffsetsInitializer:
        """Start at the first message with this timestamp or a later one; if there is none, at the latest offset.

        Args:
            timestamp: In ms since the epoch.

        Raises:
            ConfigurationError: The timestamp is not an int of at least 0.
        """
        if isinstance(timestamp, bool) or not isinstance(timestamp, int) or not 0 <= timestamp < 1 << 63:
            raise ConfigurationError(f"timestamp must be an int of ms since the epoch, got {timestamp!r}.")
        return _AtTime(timestamp)

    @staticmethod
    def committed_offsets(otherwise: OffsetsInitializer | None = None) -> OffsetsInitializer:
        """Start at the offsets committed by the consumer group. Waits for open transactions that change them.

        Args:
            otherwise: Used for partitions without a committed offset. None: such a partition raises ``JobError``.
        """
        return _Committed(otherwise)

    @staticmethod
    def offsets(
        offsets: Mapping[tuple[str, int], int], otherwise: OffsetsInitializer | None = None
    ) -> OffsetsInitializer:
        """Start at explicit offsets.

        Args:
            offsets: Offsets by (topic, partition). A partition that does not exist when the job first starts, or is not
                read, fails the job.
            otherwise: Used for all other partitions. None: ``earliest()``. As stopping offsets, other partitions are
                then not read at all.

        Raises:
            ConfigurationError: A partition is not a pair of a topic and a number, or an offset is not an int of at
                least 0.
        """
        for place, offset in offsets.items():
            match place:
                case (str(), int(number)) if number >= 0 and not isinstance(number, bool):
                    pass
                case _:
                    raise ConfigurationError(f'A partition must be given as ("topic", number), got {place!r}.')
            if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 1 << 63:
                raise ConfigurationError(f"The offset of {place} must be an int of at least 0, got {offset!r}.")
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

    @property
    def named(self) -> Collection[TopicPartition]:
        return () if self.otherwise is None else self.otherwise.named

    def offsets_of(self, partitions: Collection[TopicPartition], lookup: OffsetLookup) -> Mapping[TopicPartition, int]:
        committed = lookup.committed(partitions)
        missing = [partition for partition in partitions if partition not in committed]
        if missing and self.otherwise is None:
            raise JobError(
                f"The consumer group has committed no offset for {', '.join(map(str, missing))}. Specify where to "
                f"start: OffsetsInitializer.committed_offsets(otherwise=OffsetsInitializer.earliest())."
            )
        return _completed(partitions, committed, self.otherwise, lookup)


@dataclass(frozen=True)
class _Given(OffsetsInitializer):
    offsets_by_partition: Mapping[TopicPartition, int]
    otherwise: OffsetsInitializer

    @property
    def needs_group(self) -> bool:
        return self.otherwise.needs_group

    @property
    def named(self) -> Collection[TopicPartition]:
        return (*self.offsets_by_partition, *self.otherwise.named)

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
