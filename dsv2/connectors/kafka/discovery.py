"""What the driver knows of the subscribed partitions: which there are, where reading begins, how far it can go."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dsv2.connectors.kafka.choices import OnOffsetsOutOfRange
from dsv2.connectors.kafka.offsets import OffsetsInitializer
from dsv2.connectors.kafka.split import KafkaSplit, TopicPartition
from dsv2.connectors.kafka.subscription import Subscription
from dsv2.errors import JobError
from dsv2.sources import AssignmentState, Portion, SplitDiscovery

if TYPE_CHECKING:
    from dsv2.connectors.kafka.broker import Broker

__all__ = ("KafkaDiscovery",)


@dataclass(frozen=True, slots=True)
class _Range:
    """What is there of a partition for readers."""

    earliest: int
    latest: int
    topic_id: str


class KafkaDiscovery(SplitDiscovery[KafkaSplit]):
    """Lives on the driver for one run of the job."""

    def __init__(
        self,
        broker: Broker,
        subscription: Subscription,
        restored: AssignmentState[KafkaSplit] | None,
        *,
        commits: bool,
    ) -> None:
        """``commits``: tell the consumer group how far reading has come."""
        self._broker = broker
        self._subscription = subscription
        self._commits = commits
        # Where reading of a partition begins is looked up when it is found; the checkpoint knows the others' place.
        self._begun = {} if restored is None else {partition: _elsewhere(partition) for partition in _known(restored)}
        self._first_look = restored is None or not restored.discovered
        self._partitions = list(self._begun)
        self._ranges: Mapping[TopicPartition, _Range] | None = None
        self._committed: dict[TopicPartition, int] = {}

    def discover(self) -> Collection[KafkaSplit]:
        subscription = self._subscription
        there = self._broker.partitions(subscription.topics, subscription.pattern)
        self._check_topics({partition.topic for partition in there})
        if new := [partition for partition in there if partition not in self._begun]:
            self._begin(new)
        self._partitions = list(dict.fromkeys([*self._partitions, *there]))
        self._first_look = False
        return [self._begun[partition] for partition in there]

    def _check_topics(self, there: Collection[str]) -> None:
        missing = [topic for topic in self._subscription.topics or () if topic not in there]
        if missing and self._subscription.on_offsets_out_of_range is OnOffsetsOutOfRange.FAIL:
            raise JobError(
                f"There is no topic {', '.join(missing)}. Create it, or take it out of topics: its partitions are "
                f"dropped when the job starts again."
            )

    def _begin(self, partitions: Collection[TopicPartition]) -> None:
        # A partition that comes later was empty before, so all of it is new.
        starting = self._subscription.starting_offsets if self._first_look else OffsetsInitializer.earliest()
        stopping = self._subscription.stopping_offsets
        starts = starting.offsets_of(partitions, self._broker)
        stops = {} if stopping is None else stopping.offsets_of(partitions, self._broker)
        ids = self._topic_ids(partitions)
        for partition in partitions:
            split = KafkaSplit(*partition, starts[partition], stops.get(partition))
            self._begun[partition] = replace(split, topic_id=ids.get(partition.topic, ""))

    def refresh(self) -> None:
        self._ranges = None  # looked up when asked for, which is after new partitions were discovered

    def advance(self, split: KafkaSplit, limit: int | None, /) -> Portion[KafkaSplit] | None:
        partition = split.topic_partition
        if self._ranges is None:
            self._ranges = self._look_up(self._partitions)
        if partition not in self._ranges:
            return self._gone(split)
        there = self._ranges[partition]
        if split.topic_id != there.topic_id:
            return self._made_anew(split, there)
        if split.offset < there.earliest or split.offset > there.latest:
            return self._out_of_range(split, there)
        return _portion(split, there.latest, limit)

    def _look_up(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, _Range]:
        earliest, latest = self._broker.earliest(partitions), self._broker.latest(partitions)
        ids = self._topic_ids(partitions)
        return {
            partition: _Range(earliest[partition], latest[partition], ids[partition.topic])
            for partition in partitions
            if partition in earliest and partition in latest and partition.topic in ids
        }

    def _topic_ids(self, partitions: Collection[TopicPartition]) -> Mapping[str, str]:
        return self._broker.topic_ids(sorted({partition.topic for partition in partitions}))

    def _gone(self, split: KafkaSplit) -> Portion[KafkaSplit]:
        if self._subscription.on_offsets_out_of_range is OnOffsetsOutOfRange.FAIL:
            raise JobError(
                f"{split.split_id} has disappeared, which the job has read up to offset {split.offset}. If its topic "
                f"was deleted on purpose, take it out of topics and start again from the checkpoint: the partition is "
                f'dropped then. To go on without what is gone, say on_offsets_out_of_range="earliest" (or "latest").'
            )
        self._begun.pop(split.topic_partition, None)  # should it come again, it is another one
        return Portion(split, size=0, last=True)

    def _made_anew(self, split: KafkaSplit, there: _Range) -> Portion[KafkaSplit]:
        if self._subscription.on_offsets_out_of_range is OnOffsetsOutOfRange.FAIL:
            raise JobError(
                f"{split.topic} is not the topic any more that the job has read, in {split.split_id} up to offset "
                f"{split.offset}: that one was deleted, and another one was made under its name. To go on with the new "
                f'one, from its first message, say on_offsets_out_of_range="earliest" (or "latest").'
            )
        return self._reset(replace(split, topic_id=there.topic_id), there)

    def _reset(self, split: KafkaSplit, there: _Range) -> Portion[KafkaSplit]:
        earliest = self._subscription.on_offsets_out_of_range is OnOffsetsOutOfRange.EARLIEST
        offset = there.earliest if earliest else there.latest
        return Portion(replace(split, offset=offset, resets=split.resets + 1, reset_offset=offset), size=0)

    def _out_of_range(self, split: KafkaSplit, there: _Range) -> Portion[KafkaSplit] | None:
        policy = self._subscription.on_offsets_out_of_range
        if there.latest < split.offset <= self._broker.ends([split.topic_partition]).get(split.topic_partition, 0):
            return None  # what stands before is of a transaction that is still open
        if policy is OnOffsetsOutOfRange.FAIL:
            raise JobError(
                f"{split.split_id} cannot be read at offset {split.offset}: it holds those from {there.earliest} to "
                f"{there.latest}. The messages that the job wants were deleted, by age or size, or the topic was made "
                f'anew. To go on without them, say on_offsets_out_of_range="earliest" (or "latest").'
            )
        return self._reset(split, there)

    def notify_checkpoint_complete(self, splits: Sequence[KafkaSplit], /) -> None:
        if self._commits:
            read = {split.topic_partition: split.offset for split in splits}
            news = {place: offset for place, offset in read.items() if self._committed.get(place) != offset}
            if news:
                self._broker.commit(news)
                self._committed.update(news)

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


def _known(restored: AssignmentState[KafkaSplit]) -> list[TopicPartition]:
    """The partitions that a run before has met."""
    waiting = (*restored.unassigned, *(split for splits in restored.pending.values() for split in splits))
    names = (*restored.owners, *restored.finished, *(split.split_id for split in waiting))
    return [TopicPartition.named(name) for name in dict.fromkeys(names)]


def _elsewhere(partition: TopicPartition) -> KafkaSplit:
    """Stands for a split whose position the checkpoint knows."""
    return KafkaSplit(*partition, 0)
