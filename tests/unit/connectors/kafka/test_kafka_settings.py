"""Settings that ``KafkaSource`` and ``KafkaSink`` set or refuse, because a default of librdkafka would change them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dsv2 import CollectSink, DeadLetter, ErrorPolicy, JobError
from dsv2.base.clock import SystemClock
from dsv2.connectors.kafka import KafkaSink, OffsetsInitializer, TopicPartition
from dsv2.connectors.kafka.broker import Broker
from dsv2.connectors.kafka.choices import OnOffsetsOutOfRange
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.discovery import KafkaDiscovery
from dsv2.connectors.kafka.encoder import MessageEncoder
from dsv2.connectors.kafka.producers import RecordProducer
from dsv2.connectors.kafka.subscription import Subscription
from dsv2.errors import ConfigurationError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.model import RecordBatch
from tests.durations import ms
from tests.support import local_environment

SERVERS = "127.0.0.1:1"


def connection(**options: Any) -> KafkaConnection:
    return KafkaConnection("test", SERVERS, {k.replace("_", "."): v for k, v in options.items()}, ms(1000))


# --- Settings --------------------------------------------------------------------------------------------------------


def test_settings_that_decide_about_values_and_delivery() -> None:
    common = {"bootstrap.servers": SERVERS, "reconnect.backoff.max.ms": 1000, "log.connection.close": False}
    producer = {
        **common,
        "enable.idempotence": True,
        "acks": "all",
        "delivery.report.only.error": True,
        "partitioner": "murmur2_random",
        "message.max.bytes": 1_000_000,
    }
    assert connection().producer_config(None) == {**producer, "delivery.timeout.ms": 1000}
    assert connection().producer_config("id") == {
        **producer,
        "transactional.id": "id",
        "transaction.timeout.ms": 60_000,
    }
    assert connection().consumer_config() == {
        **common,
        "group.id": "dsv2",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "check.crcs": True,
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 10,
        "queued.min.messages": 20_000,
        "fetch.queue.backoff.ms": 10,
    }


def test_options_override_defaults_but_not_guarantees() -> None:
    changed = connection(partitioner="consistent", transaction_timeout_ms=5000, isolation_level="read_uncommitted")
    assert changed.producer_config("id")["partitioner"] == "consistent"
    assert changed.producer_config("id")["transaction.timeout.ms"] == 5000
    assert changed.consumer_config()["isolation.level"] == "read_uncommitted"
    for option in ("acks", "request_required_acks", "enable_idempotence", "auto_offset_reset"):
        with pytest.raises(ConfigurationError, match="test sets the option"):
            connection(**{option: "1"})


# --- Messages --------------------------------------------------------------------------------------------------------


def encoder(**parts: Any) -> MessageEncoder[str]:
    return MessageEncoder("topic", str.encode, parts.get("key"), parts.get("headers"), parts.get("partition"))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"partition": lambda record: -1}, "ValueError: The partition is -1, but numbers of partitions begin at 0"),
    ({"partition": lambda record: 1 << 31}, "OverflowError: "),
    ({"headers": lambda record: [("a\0b", b"")]}, "ValueError: The name of the header 'a\\x00b' has a NUL character"),
    ({"headers": lambda record: [("\ud800", b"")]}, "UnicodeEncodeError: "),  # crashed the process
    ({"headers": lambda record: [(b"name", b"")]}, "TypeError: The name of a header of the message must not be bytes"),
    ({"headers": lambda record: [("name", 5)]}, "TypeError: "),
    ({"key": lambda record: 5}, "TypeError: "),
    ({"key": lambda record: {}[record]}, "KeyError: 'text'"),
]


@pytest.mark.parametrize(("parts", "told"), REFUSED)
def test_refused_message_names_its_record(parts: dict[str, Any], told: str) -> None:
    producer = RecordProducer(connection())
    with pytest.raises(JobError) as refused:
        producer.send(RecordBatch(["text"], [5]), encoder(**parts))
    producer.close()
    assert str(refused.value).startswith(f"Cannot write the record 'text': {told}")


@pytest.mark.parametrize(("parts", "told"), [case for case in REFUSED if "OverflowError" not in case[1]])
def test_error_policy_gets_what_would_be_refused(parts: dict[str, Any], told: str) -> None:
    with pytest.raises(Exception, match=r".") as refused:
        encoder(**parts).check("text", 100)
    assert f"{type(refused.value).__name__}: {refused.value}".startswith(told.partition(" of the message")[0])


@pytest.mark.parametrize("timestamp", [0, 1 << 63])
def test_timestamp_that_would_be_another_one_is_refused(timestamp: int) -> None:
    producer = RecordProducer(connection())
    with pytest.raises(JobError, match=r"Cannot write the record 'text': (ValueError: .* timestamp 0 |OverflowError)"):
        producer.send(RecordBatch(["text"], [timestamp]), encoder())
    for written in (None, 1, -1, -(10**15)):
        producer.send(RecordBatch(["text"], [written]), encoder())
    producer.close()


class Written(CollectSink[int]):
    """Checks timestamps as ``KafkaSink`` does."""

    def check_timestamp(self, timestamp: int) -> None:
        KafkaSink[int](SERVERS, "topic", str.encode).check_timestamp(timestamp)  # type: ignore[arg-type]

    def check_record(self, record: int) -> None:
        assert record != 3


def test_record_with_a_refused_timestamp_becomes_a_dead_letter() -> None:
    env, sink, letters = local_environment(1), Written(), CollectSink[DeadLetter[int]]()
    times = EventTimeExtension.new_watermark_generator_builder(lambda number: number).build_as_process_function()
    stream = env.from_collection([0, 1, 2, 3]).process(times)
    written = stream.to_sink(sink).with_error_policy(ErrorPolicy().dead_letter())
    written.dead_letters(int).to_sink(letters)
    env.execute()
    assert sink.results == [1, 2]
    assert [letter.record for letter in letters.results] == [0, 3]


# --- Offsets ---------------------------------------------------------------------------------------------------------


class Cluster:
    """A broker with the partitions 0 and 1 of one topic."""

    def partitions(self, topics: Collection[str] | None, pattern: str | None) -> list[TopicPartition]:
        return [TopicPartition("orders", number) for number in range(2)]

    def earliest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    latest = earliest

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return dict.fromkeys(topics, "id")


def discovery(starting: OffsetsInitializer, stopping: OffsetsInitializer | None) -> KafkaDiscovery:
    subscription = Subscription(("orders",), None, starting, stopping, OnOffsetsOutOfRange.FAIL)
    broker: Any = Cluster()
    return KafkaDiscovery(broker, subscription, None, commits=False)


@pytest.mark.parametrize("place", [("orders", 2), ("order", 0)])
def test_offsets_of_partitions_that_are_not_read_are_refused(place: tuple[str, int]) -> None:
    known, unknown = OffsetsInitializer.offsets({("orders", 1): 3}), OffsetsInitializer.offsets({place: 3})
    nested = OffsetsInitializer.committed_offsets(OffsetsInitializer.offsets({("orders", 0): 1}, unknown))
    name = f"{place[0]}-{place[1]}"
    for starting, stopping, told in (
        (unknown, None, f"starting_offsets has an offset for {name}, "),
        (known, unknown, f"stopping_offsets has an offset for {name}, "),
        (nested, known, f"starting_offsets has an offset for {name}, "),
    ):
        with pytest.raises(JobError) as refused:
            discovery(starting, stopping).discover()
        assert str(refused.value).startswith(told)
    assert [split.offset for split in discovery(known, None).discover()] == [0, 3]


PLACES = ["orders", ("orders",), ("orders", "0"), ("orders", -1), ("orders", True), (0, "orders")]


@pytest.mark.parametrize("place", PLACES)
def test_partition_must_be_a_pair(place: Any) -> None:
    with pytest.raises(ConfigurationError, match="A partition must be given as"):
        OffsetsInitializer.offsets({place: 3})


@pytest.mark.parametrize("number", [-1, 1 << 63, True, 1.0])
def test_offset_and_timestamp_must_fit(number: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be an int"):
        OffsetsInitializer.offsets({("orders", 0): number})
    with pytest.raises(ConfigurationError, match="must be an int"):
        OffsetsInitializer.timestamp(number)


class Admin:
    def list_topics(self, timeout: float) -> Any:
        names = ("sales", "all-sales", "__consumer_offsets", "__transaction_state", "__own")
        partition = SimpleNamespace(partitions={0: None})
        return SimpleNamespace(topics=dict.fromkeys(names, partition))


def test_pattern_does_not_match_internal_topics() -> None:
    broker = Broker(connection(), SystemClock())
    broker._admin = cast("Any", Admin())
    found = {partition.topic for partition in broker.partitions(None, ".*")}
    assert found == {"sales", "all-sales", "__own"}
    assert [partition.topic for partition in broker.partitions(None, "sales")] == ["sales"]
    assert [partition.topic for partition in broker.partitions(("__consumer_offsets",), None)] == ["__consumer_offsets"]
