"""Asking the brokers: which partitions there are, and how far they go. The only clients here are those that ask."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, TimeoutError, wait
from typing import Any, NamedTuple, TypeVar

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from dsv2.clock import Clock
from dsv2.connectors.kafka.client_errors import ClientErrors, failure_of, is_hopeless
from dsv2.connectors.kafka.client_log import KafkaClientLog
from dsv2.connectors.kafka.connection import Config, KafkaConnection
from dsv2.connectors.kafka.split import TopicPartition

__all__ = ("Broker", "CommittedOffset")

T = TypeVar("T")
AskedT = TypeVar("AskedT")

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
_FIRST_ANSWER_SECONDS, _LONGEST_ANSWER_SECONDS = 2.0, 30.0
_FAREWELL_SECONDS = 5.0
# librdkafka (up to 2.16) uses freed memory when a request of an admin client passes its timeout while the broker to be
# asked is still looked for, and crashes the process (confluentinc/librdkafka#4605, #5397). So requests get the longest
# timeout there is. The waiting is limited here, and a client that was waited for in vain is replaced: that is safe.
_NO_TIMEOUT_SECONDS = 3600.0
_MOST_CONSUMERS = 8  # each has threads and connections; a new one needs some 60 ms to find its coordinator
_NO_COORDINATOR = "The coordinator of the group was not reached, or waits for the end of an open transaction"
_REFUSED_FOR_GOOD = (  # the topic is gone; the group has members, which commit for themselves
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_MEMBER_ID,
)


class CommittedOffset(NamedTuple):
    """What a consumer group has committed for a partition."""

    offset: int
    note: str = ""


class Broker:
    """The cluster as the driver sees it. Tries again for ``retry_timeout_ms`` while nobody answers."""

    def __init__(self, connection: KafkaConnection, clock: Clock) -> None:
        """Raises ``JobError`` if the client library refuses the options."""
        self._connection = connection
        self._clock = clock
        self._errors = ClientErrors()
        self._committing: Mapping[TopicPartition, int] = {}  # what the last commit is about, and what became of it
        self._commit: Future[ConsumerGroupTopicPartitions] | None = None
        self._committed_at = 0.0
        self._consumers: dict[str, Consumer] = {}  # by the group that they are asked about
        self._connect()

    def _connect(self) -> None:
        """Begin anew: a client whose broker was gone does not always find it again."""
        config: Config = {**self._connection.client_config(), "error_cb": self._errors.remember}
        try:
            self._admin = AdminClient(config, logger=KafkaClientLog(self._connection.redacted))
        except KafkaException as error:
            failure = failure_of(self._connection, "Kafka cannot be asked", error.args[0])
            raise failure from self._connection.presentable(error)

    def close(self) -> None:
        """Let go of the connections, once it is known what became of the last commit, or after some seconds."""
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while self._commit is not None:
            wait([self._commit], _FAREWELL_SECONDS)
            if not self._commit.done() or not self._uncommitted() or time.monotonic() >= deadline:
                break
            time.sleep(_FIRST_PAUSE_SECONDS)  # a coordinator that is only just starting, mostly
            self.commit({})
        while self._consumers:
            self._consumers.popitem()[1].close()
        del self._admin

    def partitions(self, topics: Collection[str] | None, pattern: str | None) -> list[TopicPartition]:
        """All partitions of ``topics``, or of those whose whole name fits ``pattern``; in order."""
        metadata = self._ask("The topics cannot be listed", lambda seconds: self._admin.list_topics(timeout=seconds))
        wanted = [
            name
            for name in metadata.topics
            if (topics is not None and name in topics) or (pattern is not None and re.fullmatch(pattern, name))
        ]
        return sorted(TopicPartition(name, number) for name in wanted for number in metadata.topics[name].partitions)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """What tells each topic from those of the same name before and after; without topics that are not there."""

        def ask(seconds: float) -> Mapping[str, str]:
            answers = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=_NO_TIMEOUT_SECONDS)
            found = {topic: description.topic_id for topic, description in _answered(answers, seconds).items()}
            return {topic: "" if topic_id is None else str(topic_id) for topic, topic_id in found.items()}

        return self._ask("The topics cannot be described", ask) if topics else {}

    def earliest(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """As ``OffsetLookup``; without the partitions that are not there."""
        return self._offsets(partitions, OffsetSpec.earliest(), uncommitted=True)

    def latest(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """As ``OffsetLookup``; without the partitions that are not there."""
        return self._offsets(partitions, OffsetSpec.latest(), uncommitted=self._connection.sees_uncommitted)

    def ends(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """The ends of the partitions, whether or not a reader may see what stands before; without those not there."""
        return self._offsets(partitions, OffsetSpec.latest(), uncommitted=True)

    def at_time(self, partitions: Collection[TopicPartition], timestamp: int, /) -> Mapping[TopicPartition, int]:
        """As ``OffsetLookup``."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp), uncommitted=True)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def committed(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """As ``OffsetLookup``."""
        assert self._connection.group_id is not None
        found = self._committed(self._connection.group_id, partitions)
        return {partition: committed.offset for partition, committed in found.items()}

    def group_offset(self, group: str, partition: TopicPartition) -> CommittedOffset | None:
        """What any ``group`` has committed for ``partition``, that no open transaction changes. Raises ``JobError``."""
        return self._committed(group, [partition]).get(partition)

    def set_group_offset(self, group: str, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Commit it for any ``group``, and wait until that is done. Raises ``JobError``."""

        def ask(seconds: float) -> None:
            _accepted(_answer(self._alter(group, {partition: committed}), seconds).topic_partitions or [])

        self._ask(f"The offset of consumer group {group!r} cannot be set", ask)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Let the group show how far it is; does not wait, and a failure is only logged.

        What the last call was to commit is tried again if that may help, and if it is not known what became of it.
        """
        assert self._connection.group_id is not None
        left = self._uncommitted()
        overdue = time.monotonic() - self._committed_at > _LONGEST_ANSWER_SECONDS
        if left and self._commit is not None and (self._commit.done() or overdue):
            self._connect()
        self._committing = {**left, **offsets}
        committed = {partition: CommittedOffset(offset) for partition, offset in self._committing.items()}
        self._committed_at = time.monotonic()
        self._commit = self._alter(self._connection.group_id, committed)
        self._commit.add_done_callback(self._log_commit)

    def _uncommitted(self) -> Mapping[TopicPartition, int]:
        if self._commit is None:
            return {}
        if not self._commit.done():
            return self._committing
        if (failed := self._commit.exception()) is not None:
            return {} if is_hopeless(failed.args[0]) else self._committing
        return {
            partition: self._committing[partition]
            for partition, error in _refused(self._commit.result().topic_partitions or ())
            if not is_hopeless(error) and error.code() not in _REFUSED_FOR_GOOD
        }

    def _log_commit(self, future: Future[ConsumerGroupTopicPartitions]) -> None:
        failed = future.exception()
        refused = () if failed else _refused(future.result().topic_partitions or ())
        errors = [f"{partition}: {error.str()}" for partition, error in refused]
        if failed or errors:
            told = self._connection.redacted(str(failed) if failed else "; ".join(errors))
            _LOG.warning("Offsets were not committed to consumer group %r: %s", self._connection.group_id, told)

    def _committed(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        def ask(seconds: float) -> list[confluent_kafka.TopicPartition]:
            parts = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
            consumer = self._consumer_of(group)
            try:
                return _accepted(consumer.committed(parts, seconds))
            except KafkaException as error:
                consumer.poll(0)  # it may say why
                if error.args[0].code() == KafkaError._TIMED_OUT:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, _NO_COORDINATOR)) from None
                raise

        found = self._ask(f"The offsets of consumer group {group!r} cannot be read", ask)
        return {
            TopicPartition(part.topic, part.partition): CommittedOffset(part.offset, part.metadata or "")
            for part in found
            if part.offset >= 0
        }

    def _consumer_of(self, group: str) -> Consumer:
        # Not an admin client: it crashes the process if the broker is not, or no longer, the coordinator of the group
        # (librdkafka up to 2.16, confluentinc/librdkafka#5040).
        consumer = self._consumers.get(group)
        if consumer is None:
            if len(self._consumers) >= _MOST_CONSUMERS:
                self._consumers.pop(next(iter(self._consumers))).close()
            config: Config = {
                **self._connection.consumer_config(),
                "group.id": group,
                "isolation.level": "read_committed",  # waits for open transactions that change the offsets
                "error_cb": self._errors.remember,
            }
            consumer = Consumer(config, logger=KafkaClientLog(self._connection.redacted))
            self._consumers[group] = consumer
        return consumer

    def _alter(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Future[ConsumerGroupTopicPartitions]:
        parts = [
            confluent_kafka.TopicPartition(*place, offset.offset, offset.note) for place, offset in offsets.items()
        ]
        asked = [ConsumerGroupTopicPartitions(group, parts)]
        (future,) = self._admin.alter_consumer_group_offsets(asked, request_timeout=_NO_TIMEOUT_SECONDS).values()
        return future

    def _offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, *, uncommitted: bool
    ) -> Mapping[TopicPartition, int]:
        wanted = {confluent_kafka.TopicPartition(*partition): spec for partition in partitions}
        level = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED

        def ask(seconds: float) -> Mapping[TopicPartition, int]:
            options: dict[str, Any] = {"isolation_level": level, "request_timeout": _NO_TIMEOUT_SECONDS}
            found = _answered(self._admin.list_offsets(wanted, **options), seconds)
            return {TopicPartition(part.topic, part.partition): answer.offset for part, answer in found.items()}

        return self._ask("The offsets of partitions cannot be looked up", ask) if wanted else {}

    def _ask(self, what: str, call: Callable[[float], T]) -> T:
        """``call``, given the seconds to wait for the answer; again while it fails for a reason that may pass."""
        deadline = self._clock.now_ms() + self._connection.retry_timeout_ms
        pause, patience = _FIRST_PAUSE_SECONDS, _FIRST_ANSWER_SECONDS
        while True:
            try:
                return call(min(patience, max(0.1, (deadline - self._clock.now_ms()) / 1000)))
            except KafkaException as raised:
                error = self._cause(raised.args[0])
                failure = failure_of(self._connection, what, error)
                if is_hopeless(error) or self._clock.now_ms() >= deadline:
                    raise failure from self._connection.presentable(raised)
            _LOG.warning("%s Trying again.", failure)
            time.sleep(pause)
            self._connect()
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            patience = min(2 * patience, _LONGEST_ANSWER_SECONDS)

    def _cause(self, error: KafkaError) -> KafkaError:
        # That nobody answered in time is only what comes of it.
        self._admin.poll(0)
        last, self._errors.last = self._errors.last, None
        return last if last is not None and (is_hopeless(last) or error.code() == KafkaError._TIMED_OUT) else error


def _refused(
    answered: Iterable[confluent_kafka.TopicPartition],
) -> Iterator[tuple[TopicPartition, KafkaError]]:
    """The partitions with an error of their own: the answer as a whole is none."""
    for part in answered:
        if part.error is not None:
            yield TopicPartition(part.topic, part.partition), part.error


def _answer(future: Future[T], seconds: float) -> T:
    """The answer to a request, for which the client would wait longer."""
    try:
        return future.result(seconds)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "No answer in time")) from None


def _accepted(answered: list[confluent_kafka.TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    """The answer, unless a partition was refused: because a transaction is about to change its offset, say."""
    for _, error in _refused(answered):
        raise KafkaException(error)
    return answered


def _answered(answers: Mapping[AskedT, Future[T]], seconds: float) -> Mapping[AskedT, T]:
    """The answers, without those about what is not there."""
    found, deadline = {}, time.monotonic() + seconds
    for asked, future in answers.items():
        try:
            found[asked] = _answer(future, max(0.0, deadline - time.monotonic()))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return found
