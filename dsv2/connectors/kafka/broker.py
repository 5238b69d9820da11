"""Requests to the brokers: metadata, and the offsets of partitions and consumer groups."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, TimeoutError, wait
from datetime import timedelta
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

from dsv2.base.clock import Clock
from dsv2.connectors.kafka.client_errors import ClientErrors, KafkaClientLog, failure_of, is_permanent, reported
from dsv2.connectors.kafka.connection import Config, KafkaConnection
from dsv2.connectors.kafka.split import TopicPartition

T = TypeVar("T")
RequestT = TypeVar("RequestT")

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
_FIRST_ANSWER_SECONDS, _LONGEST_ANSWER_SECONDS = 2.0, 30.0
_CLOSE_TIMEOUT_SECONDS = 5.0
# librdkafka (up to 2.16) uses freed memory, and crashes the process, when a request of an admin client times out while
# the client is still looking for the broker (confluentinc/librdkafka#4605, #5397). So requests get the maximum timeout.
# The wait is limited here instead, and a client that did not answer is replaced, which is safe.
_NO_TIMEOUT_SECONDS = 3600.0
_MAX_CONSUMERS = 8  # each has threads and connections; a new one takes about 60 ms to find its coordinator
_AHEAD = 10  # messages of a partition
# Of a consumer that only notices messages. They are fetched again by a reader, so it fetches few.
_NOTICES: Config = {"fetch.wait.max.ms": 100, "max.partition.fetch.bytes": 1, "queued.min.messages": _AHEAD}
_INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_NO_COORDINATOR = "The coordinator of the group was not reached, or waits for the end of an open transaction"
_PERMANENTLY_REFUSED = (  # the topic was deleted; the group has members, which commit their own offsets
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_MEMBER_ID,
)


class CommittedOffset(NamedTuple):
    """The offset that a consumer group has committed for a partition, with its metadata string."""

    offset: int
    note: str = ""


class Broker:
    """The cluster as seen by the driver. Retries for ``retry_timeout_ms`` while no broker answers."""

    def __init__(self, connection: KafkaConnection, clock: Clock) -> None:
        """Connect. Raises ``JobError`` if the client library rejects the options."""
        self._connection = connection
        self._clock = clock
        self._errors = ClientErrors()
        self._committing: Mapping[TopicPartition, int] = {}  # the offsets of the last commit
        self._commit: Future[ConsumerGroupTopicPartitions] | None = None  # its result
        self._committed_at = 0.0
        self._consumers: dict[str, Consumer] = {}  # by group
        self._waiting: Consumer | None = None  # waits for messages
        self._seen: dict[TopicPartition, int] = {}  # where it goes on
        self._connect()

    def _connect(self) -> None:
        """Replace the client: one that lost its broker does not always find it again."""
        config: Config = {**self._connection.client_config(), "error_cb": self._errors.remember}
        with reported(self._connection, "Cannot connect to Kafka"):
            self._admin = AdminClient(config, logger=KafkaClientLog(self._connection.redacted))

    def close(self) -> None:
        """Close the connections once the last commit has finished, or after a few seconds."""
        deadline = time.monotonic() + _CLOSE_TIMEOUT_SECONDS
        while self._commit is not None:
            wait([self._commit], _CLOSE_TIMEOUT_SECONDS)
            if not self._commit.done() or not self._uncommitted() or time.monotonic() >= deadline:
                break
            time.sleep(_FIRST_PAUSE_SECONDS)  # usually the group coordinator is still starting
            self.commit({})
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None
        while self._consumers:
            self._consumers.popitem()[1].close()
        del self._admin

    def partitions(self, topics: Collection[str] | None, pattern: str | None) -> list[TopicPartition]:
        """Return all partitions of ``topics``, or of the topics whose whole name matches ``pattern``, in order.

        As in the Java client, no pattern matches the internal topics of the brokers.
        """
        metadata = self._request("Cannot list topics", lambda seconds: self._admin.list_topics(timeout=seconds))
        wanted = [
            name
            for name in metadata.topics
            if (topics is not None and name in topics)
            or (pattern is not None and name not in _INTERNAL_TOPICS and re.fullmatch(pattern, name))
        ]
        return sorted(TopicPartition(name, number) for name in wanted for number in metadata.topics[name].partitions)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids of the ``topics`` that exist. A topic that is deleted and created again gets another id."""

        def call(seconds: float) -> Mapping[str, str]:
            answers = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=_NO_TIMEOUT_SECONDS)
            found = {topic: description.topic_id for topic, description in _existing(answers, seconds).items()}
            return {topic: "" if topic_id is None else str(topic_id) for topic, topic_id in found.items()}

        return self._request("Cannot describe topics", call) if topics else {}

    def earliest(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """See ``OffsetLookup``. Omits partitions that do not exist."""
        return self._offsets(partitions, OffsetSpec.earliest(), uncommitted=True)

    def latest(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """See ``OffsetLookup``. Omits partitions that do not exist."""
        return self._offsets(partitions, OffsetSpec.latest(), uncommitted=self._connection.sees_uncommitted)

    def ends(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """Return the ends of partitions, including open transactions. Omits partitions that do not exist."""
        return self._offsets(partitions, OffsetSpec.latest(), uncommitted=True)

    def at_time(self, partitions: Collection[TopicPartition], timestamp: int, /) -> Mapping[TopicPartition, int]:
        """See ``OffsetLookup``."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp), uncommitted=True)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def committed(self, partitions: Collection[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """See ``OffsetLookup``."""
        assert self._connection.group_id is not None
        found = self._committed(self._connection.group_id, partitions)
        return {partition: committed.offset for partition, committed in found.items()}

    def group_offset(self, group: str, partition: TopicPartition) -> CommittedOffset | None:
        """Return the offset that ``group`` has committed for ``partition``, None if there is none.

        Waits for open transactions that change it. Raises ``JobError``.
        """
        return self._committed(group, [partition]).get(partition)

    def set_group_offset(self, group: str, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Commit an offset for ``group`` and wait for the result. Raises ``JobError``."""

        def call(seconds: float) -> None:
            _accepted(_answer(self._alter(group, {partition: committed}), seconds).topic_partitions or [])

        self._request(f"Cannot set the offset of consumer group {group!r}", call)

    def wait(self, positions: Mapping[TopicPartition, int], timeout: timedelta) -> bool:
        """Wait until a partition has a message at or after its position. False: none has one after ``timeout``."""
        if self._waiting is None:
            config: Config = {**self._connection.consumer_config(), **_NOTICES, "error_cb": self._errors.remember}
            self._waiting = Consumer(config, logger=KafkaClientLog(self._connection.redacted))
        seen = self._seen
        if seen.keys() != positions.keys() or any(not 0 <= positions[one] - seen[one] <= _AHEAD for one in seen):
            self._waiting.assign([confluent_kafka.TopicPartition(*one, offset) for one, offset in positions.items()])
            seen = self._seen = dict(positions)
        while (message := self._waiting.poll(timeout.total_seconds())) is not None and message.error() is None:
            one, offset = TopicPartition(message.topic() or "", message.partition() or 0), message.offset() or 0
            seen[one] = offset + 1
            if offset >= positions[one]:
                return True
        return False  # if there is an error, the next look-up raises it

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit ``offsets`` for the consumer group of the connection. Does not wait; a failure is only logged.

        Offsets of the previous call are committed again if they failed for a transient reason or have no result yet.
        """
        assert self._connection.group_id is not None
        uncommitted = self._uncommitted()
        overdue = time.monotonic() - self._committed_at > _LONGEST_ANSWER_SECONDS
        if uncommitted and self._commit is not None and (self._commit.done() or overdue):
            self._connect()
        self._committing = {**uncommitted, **offsets}
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
            return {} if is_permanent(failed.args[0]) else self._committing
        return {
            partition: self._committing[partition]
            for partition, error in _refused(self._commit.result().topic_partitions or ())
            if not is_permanent(error) and error.code() not in _PERMANENTLY_REFUSED
        }

    def _log_commit(self, future: Future[ConsumerGroupTopicPartitions]) -> None:
        failed = future.exception()
        refused = () if failed else _refused(future.result().topic_partitions or ())
        errors = [f"{partition}: {error.str()}" for partition, error in refused]
        if failed or errors:
            reason = self._connection.redacted(str(failed) if failed else "; ".join(errors))
            _LOG.warning("Offsets were not committed to consumer group %r: %s", self._connection.group_id, reason)

    def _committed(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        def call(seconds: float) -> list[confluent_kafka.TopicPartition]:
            parts = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
            consumer = self._consumer_of(group)
            try:
                return _accepted(consumer.committed(parts, seconds))
            except KafkaException as error:
                consumer.poll(0)  # the error callback may receive the cause
                if error.args[0].code() == KafkaError._TIMED_OUT:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, _NO_COORDINATOR)) from None
                raise

        found = self._request(f"Cannot read the offsets of consumer group {group!r}", call)
        return {
            TopicPartition(part.topic, part.partition): CommittedOffset(part.offset, part.metadata or "")
            for part in found
            if part.offset >= 0
        }

    def _consumer_of(self, group: str) -> Consumer:
        # An admin client crashes the process if the broker is not, or no longer, the coordinator of the group
        # (librdkafka up to 2.16, confluentinc/librdkafka#5040).
        consumer = self._consumers.get(group)
        if consumer is None:
            if len(self._consumers) >= _MAX_CONSUMERS:
                self._consumers.pop(next(iter(self._consumers))).close()
            config: Config = {
                **self._connection.consumer_config(),
                "group.id": group,
                "isolation.level": "read_committed",  # wait for open transactions that change offsets
                "error_cb": self._errors.remember,
            }
            consumer = Consumer(config, logger=KafkaClientLog(self._connection.redacted))
            self._consumers[group] = consumer
        return consumer

    def _alter(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Future[ConsumerGroupTopicPartitions]:
        parts = [
            confluent_kafka.TopicPartition(*partition, offset.offset, offset.note)
            for partition, offset in offsets.items()
        ]
        request = [ConsumerGroupTopicPartitions(group, parts)]
        (future,) = self._admin.alter_consumer_group_offsets(request, request_timeout=_NO_TIMEOUT_SECONDS).values()
        return future

    def _offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, *, uncommitted: bool
    ) -> Mapping[TopicPartition, int]:
        wanted = {confluent_kafka.TopicPartition(*partition): spec for partition in partitions}
        level = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED

        def call(seconds: float) -> Mapping[TopicPartition, int]:
            options: dict[str, Any] = {"isolation_level": level, "request_timeout": _NO_TIMEOUT_SECONDS}
            found = _existing(self._admin.list_offsets(wanted, **options), seconds)
            return {TopicPartition(part.topic, part.partition): answer.offset for part, answer in found.items()}

        return self._request("Cannot look up the offsets of partitions", call) if wanted else {}

    def _request(self, what: str, call: Callable[[float], T]) -> T:
        """Run ``call(timeout_seconds)``, and retry it while it fails for a transient reason."""
        deadline = self._clock.now_ms() + self._connection.retry_timeout_ms
        pause, timeout = _FIRST_PAUSE_SECONDS, _FIRST_ANSWER_SECONDS
        before: KafkaError | None = None
        while True:
            seconds = min(timeout, max(0.1, (deadline - self._clock.now_ms()) / 1000))
            try:
                return call(seconds)
            except KafkaException as raised:
                error = self._cause(raised.args[0])
                if before is not None and seconds < timeout and error.code() == KafkaError._TIMED_OUT:
                    error = before  # the deadline cut this attempt short, which says nothing about the brokers
                failure = failure_of(self._connection, what, error)
                if is_permanent(error) or self._clock.now_ms() >= deadline:
                    raise failure from self._connection.presentable(raised)
            _LOG.warning("%s Retrying.", failure)
            time.sleep(pause)
            self._connect()
            before = error
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            timeout = min(2 * timeout, _LONGEST_ANSWER_SECONDS)

    def _cause(self, error: KafkaError) -> KafkaError:
        # A timeout is only a symptom: the error callback has the cause.
        self._admin.poll(0)
        last, self._errors.last = self._errors.last, None
        return last if last is not None and (is_permanent(last) or error.code() == KafkaError._TIMED_OUT) else error


def _refused(
    partitions: Iterable[confluent_kafka.TopicPartition],
) -> Iterator[tuple[TopicPartition, KafkaError]]:
    """The partitions with errors. The response as a whole succeeds even if some of them failed."""
    for part in partitions:
        if part.error is not None:
            yield TopicPartition(part.topic, part.partition), part.error


def _answer(future: Future[T], seconds: float) -> T:
    """The response to a request, whose own timeout is longer than ``seconds``."""
    try:
        return future.result(seconds)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "The request timed out")) from None


def _accepted(partitions: list[confluent_kafka.TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    """Return ``partitions``; raise if one was refused, for example because an open transaction changes its offset."""
    for _, error in _refused(partitions):
        raise KafkaException(error)
    return partitions


def _existing(answers: Mapping[RequestT, Future[T]], seconds: float) -> Mapping[RequestT, T]:
    """The responses for the topics and partitions that exist."""
    found, deadline = {}, time.monotonic() + seconds
    for request, future in answers.items():
        try:
            found[request] = _answer(future, max(0.0, deadline - time.monotonic()))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return found
