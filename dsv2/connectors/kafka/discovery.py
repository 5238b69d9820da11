"""The driver's side of ``KafkaSource``: finds partitions and their starting offsets, and plans micro-batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from dsv2.connectors.kafka.choices import OnOffsetsOutOfRange
from dsv2.connectors.kafka.offsets import OffsetsInitializer
from dsv2.connectors.kafka.split import KafkaSplit, TopicPartition
from dsv2.connectors.kafka.subscription import Subscription
from dsv2.errors import JobError
from dsv2.sources import AssignmentState, Portion, SplitDiscovery

if TYPE_CHECKING:
    from dsv2.connectors.kafka.broker import Broker


@dataclass(frozen=True, slots=True)
class _Range:
    """The offsets of a partition that readers can read."""

    earliest: int
    latest: int
    topic_id: str


class KafkaDiscovery(SplitDiscovery[KafkaSplit]):
    """Created on the driver for each run of the job."""

    def __init__(
        self,
        broker: Broker,
        subscription: Subscription,
        restored: AssignmentState[KafkaSplit] | None,
        *,
        commits: bool,
    ) -> None:
        """``commits``: whether to commit offsets to the consumer group."""
        self._broker = broker
        self._subscription = subscription
        self._commits = commits
        # The starting offset of a partition is looked up when it is discovered. Restored partitions have theirs in the
        # checkpoint, so 0 only stands for it.
        restored_names = () if restored is None else (*restored.unfinished, *restored.finished)
        self._begun = {one: KafkaSplit(*one, 0) for one in map(TopicPartition.named, restored_names)}
        self._first_discovery = restored is None or not restored.discovered
        self._partitions = list(self._begun)
        self._ranges: Mapping[TopicPartition, _Range] | None = None
        self._latest: Mapping[TopicPartition, int] = {}  # as of the last look-up
        self._committed: dict[TopicPartition, int] = {}

    def discover(self) -> Collection[KafkaSplit]:
        subscription = self._subscription
        found = self._broker.partitions(subscription.topics, subscription.pattern)
        self._check_topics({partition.topic for partition in found})
        if self._first_discovery:
            self._check_named(found)
        if new := [partition for partition in found if partition not in self._begun]:
            self._begin(new)
        self._partitions = list(dict.fromkeys([*self._partitions, *found]))
        self._first_discovery = False
        return [self._begun[partition] for partition in found]

    def _check_topics(self, found: Collection[str]) -> None:
        missing = [topic for topic in self._subscription.topics or () if topic not in found]
        if missing and self._subscription.on_offsets_out_of_range is OnOffsetsOutOfRange.FAIL:
            raise JobError(
                f"Topic {', '.join(missing)} does not exist. Create it, or remove it from topics. Its partitions are "
                f"dropped when the job restarts."
            )

    def _check_named(self, found: Collection[TopicPartition]) -> None:
        subscription = self._subscription
        for name, offsets in (("starting", subscription.starting_offsets), ("stopping", subscription.stopping_offsets)):
            unknown = sorted(set(offsets.named).difference(found)) if offsets is not None else []
            if unknown:
                raise JobError(
                    f"{name}_offsets has an offset for {', '.join(map(str, unknown))}, but there is no such partition "
                    f"among those that the source reads: {subscription}. Correct the offsets or the topics."
                )

    def _begin(self, partitions: Collection[TopicPartition]) -> None:
        # A partition that is discovered later did not exist before, so all of its messages are new.
        starting = self._subscription.starting_offsets if self._first_discovery else OffsetsInitializer.earliest()
        stopping = self._subscription.stopping_offsets
        starts = starting.offsets_of(partitions, self._broker)
        stops = {} if stopping is None else stopping.offsets_of(partitions, self._broker)
        ids = self._topic_ids(partitions)
        for partition in partitions:
            split = KafkaSplit(*partition, starts[partition], stops.get(partition))
            self._begun[partition] = replace(split, topic_id=ids.get(partition.topic, ""))

    def refresh(self) -> None:
        self._ranges = None  # looked up by the first ``advance``, which follows the discovery of new partitions

    def advance(self, split: KafkaSplit, limit: int | None, /) -> Portion[KafkaSplit] | None:
        partition = split.topic_partition
        if self._ranges is None:
            self._ranges = self._look_up(self._partitions)
        if partition not in self._ranges:
            return self._gone(split)
        available = self._ranges[partition]
        if split.topic_id != available.topic_id:
            return self._recreated(split, available)
        if split.offset < available.earliest or split.offset > available.latest:
            return self._out_of_range(split, available)
        return _portion(split, available.latest, limit)

    def _look_up(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, _Range]:
        earliest, latest = self._broker.earliest(partitions), self._broker.latest(partitions)
        self._latest = latest
        ids = self._topic_ids(partitions)
        return {
            partition: _Range(earliest[partition], latest[partition], ids[partition.topic])
            for partition in partitions
            if partition in earliest and partition in latest and partition.topic in ids
        }

    def _topic_ids(self, partitions: Collection[TopicPartition]) -> Mapping[str, str]:
        return self._broker.topic_ids(sorted({partition.topic for partition in partitions}))

    def lag(self, split: KafkaSplit, /) -> int | None:
        latest = self._latest.get(split.topic_partition)
        if latest is None:
            return None
        stop = latest if split.stop_offset is None else min(latest, split.stop_offset)
        return max(0, stop - split.offset)

    def wait(self, splits: Sequence[KafkaSplit], timeout: timedelta, /) -> bool:
        return self._broker.wait({split.topic_partition: split.offset for split in splits}, timeout)

    def _gone(self, split: KafkaSplit) -> Portion[KafkaSplit]:
        if self._subscription.on_offsets_out_of_range is OnOffsetsOutOfRange.FAIL:
            raise JobError(
                f"{split.split_id} no longer exists. The job has read it up to offset {split.offset}. If its topic was "
                f"deleted on purpose, remove it from topics and restart the job from the checkpoint: the partition is "
                f'then dropped. To continue without it, set on_offsets_out_of_range="earliest" (or "latest").'
            )
        self._begun.pop(split.topic_partition, None)  # a partition that appears later under this name is a new one
        return Portion(split, size=0, last=True)

    def _recreated(self, split: KafkaSplit, available: _Range) -> Portion[KafkaSplit]:
        if self._subscription.on_offsets_out_of_range is OnOffsetsOutOfRange.FAIL:
            raise JobError(
                f"The topic {split.topic} was deleted and created again. The job has read {split.split_id} of the old "
                f"topic up to offset {split.offset}. To continue with the new topic, from its first message, set "
                f'on_offsets_out_of_range="earliest" (or "latest").'
            )
        return self._reset(replace(split, topic_id=available.topic_id), available)

    def _reset(self, split: KafkaSplit, available: _Range) -> Portion[KafkaSplit]:
        earliest = self._subscription.on_offsets_out_of_range is OnOffsetsOutOfRange.EARLIEST
        offset = available.earliest if earliest else available.latest
        return Portion(replace(split, offset=offset, resets=split.resets + 1, reset_offset=offset), size=0)

    def _out_of_range(self, split: KafkaSplit, available: _Range) -> Portion[KafkaSplit] | None:
        policy = self._subscription.on_offsets_out_of_range
        if available.latest < split.offset <= self._broker.ends([split.topic_partition]).get(split.topic_partition, 0):
            return None  # an open transaction precedes this offset
        if policy is OnOffsetsOutOfRange.FAIL:
            raise JobError(
                f"Cannot read {split.split_id} at offset {split.offset}: it has offsets {available.earliest} to "
                f"{available.latest}. The next messages of the job were deleted, by age or size, or the topic was "
                f'created again. To continue without them, set on_offsets_out_of_range="earliest" (or "latest").'
            )
        return self._reset(split, available)

    def notify_checkpoint_complete(self, splits: Sequence[KafkaSplit], /) -> None:
        if self._commits:
            read = {split.topic_partition: split.offset for split in splits}
            changed = {
                partition: offset for partition, offset in read.items() if self._committed.get(partition) != offset
            }
            if changed:
                self._broker.commit(changed)
                self._committed.update(changed)

    def close(self) -> None:
        self._broker.close()


def _portion(split: KafkaSplit, latest: int, limit: int | None) -> Portion[KafkaSplit] | None:
    stop = latest if split.stop_offset is None else min(latest, split.stop_offset)
    if limit is not None:
        stop = min(stop, split.offset + limit)
    last = split.stop_offset is not None and stop >= split.stop_offset
    if stop <= split.offset and not last:
        return None
    stop = max(stop, split.offset)
    return Portion(replace(split, offset=stop), size=stop - split.offset, last=last)
