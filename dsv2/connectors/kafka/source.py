"""``KafkaSource``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Set
from datetime import timedelta
from typing import Generic, Literal

from dsv2.base.record_position import Offset, SplitName
from dsv2.base.secrets import OptionValue
from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import as_choice, as_milliseconds, check_at_least_one
from dsv2.connectors.kafka.choices import OnOffsetsOutOfRange, SplitAssignment
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.discovery import KafkaDiscovery
from dsv2.connectors.kafka.message import KafkaDecoder, KafkaMessage, ManyDecoder, ValueDecoder
from dsv2.connectors.kafka.offsets import OffsetsInitializer
from dsv2.connectors.kafka.split import KafkaSplit
from dsv2.connectors.kafka.subscription import Subscription
from dsv2.connectors.kafka.tokens import OAuthCallback
from dsv2.errors import ConfigurationError
from dsv2.sources import (
    AssigningSource,
    AssignmentState,
    DataclassSerializer,
    HashSplitAssigner,
    RoundRobinSplitAssigner,
    SourceReader,
    SourceReaderContext,
    SplitAssigner,
    SplitBatch,
    SplitEnumeratorContext,
)

_ASSIGNERS: Mapping[SplitAssignment, SplitAssigner[KafkaSplit]] = {
    SplitAssignment.HASH: HashSplitAssigner(lambda split: (split.topic, split.partition)),
    SplitAssignment.ROUND_ROBIN: RoundRobinSplitAssigner(),
}


class KafkaSource(AssigningSource[T_co, KafkaSplit], Generic[T_co]):
    """Reads the messages of topics. A split is a partition, and its offset is part of the checkpoint.

    Records have the timestamps of their messages. The source reads committed messages only, unless
    ``options={"isolation.level": "read_uncommitted"}`` is set.

    Source: Flink ``KafkaSource``.
    """

    record_types = (KafkaMessage,)
    split_serializer = DataclassSerializer(KafkaSplit)

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        decode: KafkaDecoder[T_co],
        topics: str | Collection[str] | None = None,
        topic_pattern: str | None = None,
        starting_offsets: OffsetsInitializer | None = None,
        stopping_offsets: OffsetsInitializer | None = None,
        group_id: str | None = None,
        commit_offsets: bool | None = None,
        discovery_interval: timedelta | None = timedelta(minutes=5),
        split_assigner: SplitAssignment | Literal["hash", "round-robin"] = SplitAssignment.HASH,
        records_per_batch: int | None = None,
        on_offsets_out_of_range: (
            OnOffsetsOutOfRange | Literal["fail", "earliest", "latest"]
        ) = OnOffsetsOutOfRange.FAIL,
        retry_timeout: timedelta = timedelta(minutes=2),
        options: Mapping[str, OptionValue] | None = None,
        oauth_cb: OAuthCallback | None = None,
    ) -> None:
        """Create the source. Exactly one of ``topics`` and ``topic_pattern`` is required.

        Args:
            bootstrap_servers: "host:port,host:port".
            decode: Creates records from messages: ``values(json.loads)``, ``keys_and_values(...)`` or a function. The
                error policy of the source applies to its exceptions; a dead letter has the ``KafkaMessage``.
            topics: The name of a topic, or several names.
            topic_pattern: A regular expression that must match the whole name of a topic.
            starting_offsets: Where to start partitions that exist when the job first starts (default: the earliest
                offset). Partitions discovered later are read from their beginning.
            stopping_offsets: Where to stop. The source is then bounded.
            group_id: The consumer group for committed offsets.
            commit_offsets: Whether to commit offsets to the group, some time after each micro-batch except the last of
                a run (default: True if there is a group). They are for monitoring only: a job resumes from its
                checkpoint.
            discovery_interval: How often to look for new topics and partitions. None: only when the job starts.
            split_assigner: ``"hash"`` distributes the partitions of each topic evenly over the readers,
                ``"round-robin"`` the partitions of all topics together.
            records_per_batch: The maximum number of records in a micro-batch, over all partitions. None: no limit.
            on_offsets_out_of_range: The reaction to messages that were deleted before they were read: fail, or
                continue at the ``"earliest"`` or ``"latest"`` offset.
            retry_timeout: How long to retry while no broker answers, before the job fails.
            options: Options of librdkafka for TLS, SASL etc. Secrets among them are never shown.
            oauth_cb: Returns a token of SASL OAUTHBEARER and when it expires, in seconds since the epoch. Called in
                the driver and in tasks, in a thread of the client library. Must be picklable for Spark.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
        """
        if isinstance(topics, str):
            topics = (topics,)
        elif isinstance(topics, Set):
            topics = sorted(topics)  # the order of a set differs between processes
        if (not topics) == (topic_pattern is None):
            raise ConfigurationError("KafkaSource requires either topics (at least one) or topic_pattern.")
        _check_pattern(topic_pattern)
        initializers = [initializer for initializer in (starting_offsets, stopping_offsets) if initializer is not None]
        if group_id is None and (commit_offsets or any(initializer.needs_group for initializer in initializers)):
            raise ConfigurationError(
                "KafkaSource requires a group_id to read or commit the offsets of a consumer group."
            )
        check_at_least_one(records_per_batch=records_per_batch)
        if discovery_interval is not None:
            as_milliseconds(discovery_interval, "discovery_interval", at_least=1)
        self._connection = KafkaConnection(
            "KafkaSource", bootstrap_servers, options or {}, retry_timeout, group_id, oauth_cb
        )
        self._subscription = Subscription(
            None if topics is None else tuple(dict.fromkeys(topics)),
            topic_pattern,
            starting_offsets or OffsetsInitializer.earliest(),
            stopping_offsets,
            as_choice(OnOffsetsOutOfRange, on_offsets_out_of_range, "on_offsets_out_of_range"),
        )
        self._decode = decode
        if isinstance(decode, ValueDecoder) and isinstance(decode.decode, ManyDecoder):
            self.dsv2_record_type = decode.decode.record_type
        self._commits = group_id is not None and commit_offsets is not False
        self.discovery_interval = discovery_interval
        self._split_assigner = as_choice(SplitAssignment, split_assigner, "split_assigner")
        self.limit_per_batch = records_per_batch

    def __repr__(self) -> str:
        return f"KafkaSource({self._subscription} at {self._connection.bootstrap_servers}, {self._connection.options})"

    @property
    def dsv2_why_rows(self) -> str | None:
        if isinstance(self._decode, ValueDecoder) and isinstance(self._decode.decode, ManyDecoder):
            return self._decode.decode.why_rows
        return "it decodes messages one by one. For JSON use values(JsonDecoder(...))"

    @property
    def bounded(self) -> bool:
        return self._subscription.stopping_offsets is not None

    @property
    def assigner(self) -> SplitAssigner[KafkaSplit]:
        return _ASSIGNERS[self._split_assigner]

    def split_name(self, split: KafkaSplit, /) -> SplitName:
        names = self._subscription.topics
        return split.partition if names is not None and len(names) == 1 else split.split_id

    def decode_again(self, value: KafkaMessage, split: SplitName, /) -> SplitBatch[T_co]:
        return SplitBatch([value], self._decode, omits_none=True)

    def has_read(self, split: KafkaSplit, offset: Offset, /) -> bool:
        return isinstance(offset, int) and offset < split.offset

    def create_discovery(
        self, ctx: SplitEnumeratorContext[KafkaSplit], restored: AssignmentState[KafkaSplit] | None, /
    ) -> KafkaDiscovery:
        from dsv2.connectors.kafka.broker import Broker

        broker = Broker(self._connection, ctx.clock)
        return KafkaDiscovery(broker, self._subscription, restored, commits=self._commits)

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[T_co, KafkaSplit]:
        from dsv2.connectors.kafka.reader import KafkaReader

        tolerant = self._subscription.on_offsets_out_of_range is not OnOffsetsOutOfRange.FAIL
        return KafkaReader(self._connection, self._decode, tolerant)


def _check_pattern(pattern: str | None) -> None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ConfigurationError(f"topic_pattern {pattern!r} is not a regular expression: {error}.") from error
