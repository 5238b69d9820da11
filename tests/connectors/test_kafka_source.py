"""``KafkaSource`` on a real broker, in one process, to test the source alone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from components.kafka import PASSWORD, USER, KafkaBroker
from dsv2 import DeadLetter, ErrorPolicy, ExecutionEnvironment, JobError
from dsv2.connectors.kafka import KafkaMessage, KafkaSource, KafkaSplit, OffsetsInitializer, keys_and_values, values
from dsv2.errors import ConfigurationError, UserFunctionError
from dsv2.local import LocalRuntime
from dsv2.model import RecordPosition
from dsv2.runtime.sources.offsets import BEFORE_START
from dsv2.sinks import CollectSink
from dsv2.sources import SourceReader
from dsv2.testing.connectors.source_run import Reader, SourceRun
from tests.durations import LONG, ms
from tests.kafka_topics import Topics
from tests.restarted_servers import restarted_after_a_retry
from tests.support import local_environment

T = TypeVar("T")
LATEST = OffsetsInitializer.latest()
INTEGERS = values(int)
EARLIEST = OffsetsInitializer.earliest()


def read(source: KafkaSource[T], parallelism: int = 2, **options: Any) -> list[T]:
    """All records of a bounded source, as the sink receives them."""
    sink = CollectSink[T]()
    env = ExecutionEnvironment.get_instance(LocalRuntime(**options))
    env.set_parallelism(parallelism)
    env.from_source(source).to_sink(sink)
    env.execute("read")
    return sink.results


def source_of(topics: Topics, *names: str, decode: Any = INTEGERS, **options: Any) -> KafkaSource[Any]:
    """A source that ends with the existing messages."""
    options = {"stopping_offsets": LATEST, "topics": names or None, "retry_timeout": ms(120_000), **options}
    return KafkaSource(topics.bootstrap_servers, decode=decode, **options)


def numbers(*of: range) -> list[bytes]:
    return [b"%d" % number for each in of for number in each]


# --- Reading ---------------------------------------------------------------------------------------------------------


def test_every_message_is_read_once_with_all_fields(topics: Topics) -> None:
    topic = topics.create(2)
    topics.send(topic, [b"a"], key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_000)
    topics.send(topic, [None], partition=1, key=b"gone", timestamp=5)
    assert sorted(read(source_of(topics, topic, decode=lambda message: message)), key=lambda m: m.partition) == [
        KafkaMessage(topic, 0, 0, 1_700_000_000_000, b"k", b"a", (("h", b"1"), ("h", None))),
        KafkaMessage(topic, 1, 0, 5, b"gone", None, ()),
    ]
    assert read(source_of(topics, topic, decode=values(bytes.decode))) == ["a"]
    pairs = read(source_of(topics, topic, decode=keys_and_values(bytes.decode, bytes.decode)))
    assert sorted(pairs, key=str) == [("gone", None), ("k", "a")]


def test_records_have_the_timestamps_of_their_messages(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"1", b"2"], timestamp=7)
    topics.send(topic, [None, b"3"], timestamp=9)
    reader: SourceReader[int, KafkaSplit] = source_of(topics, topic).create_reader(Reader())
    batches = list(reader.read(KafkaSplit(topic, 0, 1), KafkaSplit(topic, 0, 4)))
    reader.close()
    assert [record for batch in batches for record in batch.records] == [2, 3]
    assert [timestamp for batch in batches for timestamp in batch.timestamps or ()] == [7, 9]


@pytest.mark.parametrize("split_assigner", ["hash", "round-robin"])
def test_many_messages_in_micro_batches_with_restarts(topics: Topics, split_assigner: Any) -> None:
    first, second = topics.create(3), topics.create(2)
    for partition in range(3):
        topics.send(first, numbers(range(partition, 20_000, 3)), partition)
    topics.send(second, numbers(range(20_000, 30_000)), 1)
    source = source_of(topics, first, second, split_assigner=split_assigner, records_per_batch=6_000)
    assert sorted(read(source, 3, batches=[2_500])) == list(range(30_000))


def test_topic_pattern_must_match_the_whole_name(topics: Topics) -> None:
    for name in ("sales-eu", "sales-us", "sales-euro", "sales", "all-sales-eu"):
        topics.create(name=name)
        topics.send(name, [name.encode()])
    assert sorted(read(source_of(topics, topic_pattern="sales-..", decode=values(bytes.decode)))) == [
        "sales-eu",
        "sales-us",
    ]


def test_only_committed_messages_are_read(topics: Topics) -> None:
    topic = topics.create(2)
    topics.transaction(topic).send(b"1", b"2").commit()
    topics.transaction(topic).send(b"-1", b"-2").abort()
    topics.transaction(topic).send(b"3").commit()
    topics.transaction(topic, 1).send(b"-3").abort()  # a range without any message
    topics.await_commits(topic)
    pending = topics.transaction(topic).send(b"4")
    topics.send(topic, [b"5"])  # after the open transaction
    assert read(source_of(topics, topic), 1) == [1, 2, 3]
    everything = read(source_of(topics, topic, options={"isolation.level": "read_uncommitted"}))
    assert sorted(everything) == [-3, -2, -1, 1, 2, 3, 4, 5]
    pending.commit()
    topics.await_commits(topic)
    assert read(source_of(topics, topic), 1) == [1, 2, 3, 4, 5]
    # For any limit, although some offsets have no message.
    run = Run(unbounded(topics, topic))
    batches = [run.batch(limit=3) for _ in range(5)]
    assert [number for batch in batches for number in batch] == [1, 2, 3, 4, 5]
    assert run.batch() == []


# --- Starting and stopping offsets -----------------------------------------------------------------------------------


def test_starting_and_stopping_offsets(topics: Topics) -> None:
    topic = topics.create(2)
    for partition, timestamp in ((0, 1_000), (1, 2_000)):
        topics.send(topic, numbers(range(10 * partition, 10 * partition + 3)), partition, timestamp=timestamp)
        topics.send(topic, numbers(range(10 * partition + 3, 10 * partition + 5)), partition, timestamp=timestamp + 500)

    def between(start: OffsetsInitializer, stop: OffsetsInitializer = LATEST, **options: Any) -> list[int]:
        return sorted(read(source_of(topics, topic, starting_offsets=start, stopping_offsets=stop, **options)))

    assert between(EARLIEST) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert between(LATEST) == []
    assert between(OffsetsInitializer.timestamp(1_001)) == [3, 4, 10, 11, 12, 13, 14]
    assert between(OffsetsInitializer.timestamp(9_999)) == []
    assert between(EARLIEST, OffsetsInitializer.timestamp(2_200)) == [0, 1, 2, 3, 4, 10, 11, 12]
    some = OffsetsInitializer.offsets({(topic, 1): 3})
    assert between(some) == [0, 1, 2, 3, 4, 13, 14]
    assert between(some, OffsetsInitializer.offsets({(topic, 0): 2, (topic, 1): 4})) == [0, 1, 13]
    # If the end is before the start, nothing is read.
    assert between(LATEST, OffsetsInitializer.offsets({(topic, 0): 2})) == []


@pytest.mark.usefixtures("patient_requests")
def test_reading_starts_at_the_committed_offsets(topics: Topics) -> None:
    topic = topics.create(2)
    topics.send(topic, numbers(range(4)))
    topics.send(topic, numbers(range(10, 12)), 1)
    run_all(
        source_of(topics, topic, group_id="first", stopping_offsets=OffsetsInitializer.offsets({(topic, 0): 3}, LATEST))
    )
    topics.send(topic, [b"12"], 1)
    committed = OffsetsInitializer.committed_offsets(otherwise=EARLIEST)
    assert sorted(read(source_of(topics, topic, group_id="first", starting_offsets=committed))) == [3, 12]
    assert sorted(read(source_of(topics, topic, group_id="new", starting_offsets=committed))) == [
        0,
        1,
        2,
        3,
        10,
        11,
        12,
    ]
    strict = source_of(topics, topic, group_id="strict", starting_offsets=OffsetsInitializer.committed_offsets())
    with pytest.raises(JobError, match=rf"committed no offset for {topic}-0, {topic}-1\. Specify where to start"):
        read(strict)


# --- From one micro-batch to the next --------------------------------------------------------------------------------


class Run(SourceRun):
    """A run of a job that consists of a ``KafkaSource``."""

    def batch(self, limit: int | None = None) -> list[Any]:
        """The records of the next micro-batch, empty if there is no new data, after the previous one is complete."""
        if self.offset != BEFORE_START:
            self.driver.commit(self.offset)
        return self.repeated() if self.plan_next(limit, commits=False) else []

    def repeated(self) -> list[Any]:
        return sorted(super().repeated())

    def owners(self) -> dict[str, int]:
        return {
            f"{split['at']['topic']}-{split['at']['partition']}": subtask
            for subtask, reader in enumerate(self.offset["readers"])
            for split in reader["splits"]
            if not split["last"]
        }


def run_all(source: KafkaSource[Any]) -> None:
    run = Run(source)
    while not run.driver.ended:
        run.batch()
    run.batch()
    run.driver.close()


def unbounded(topics: Topics, *names: str, **options: Any) -> KafkaSource[int]:
    return source_of(topics, *names, **{"stopping_offsets": None, **options})


def test_repeated_micro_batch_reads_the_same(topics: Topics) -> None:
    topic = topics.create(2)
    topics.send(topic, numbers(range(5)))
    run = Run(unbounded(topics, topic))
    assert run.batch() == [0, 1, 2, 3, 4]
    topics.send(topic, numbers(range(5, 9)))
    assert run.repeated() == [0, 1, 2, 3, 4]
    assert run.batch(limit=3) == [5, 6, 7]
    assert run.batch() == [8]
    assert run.batch() == []


def test_new_partitions_are_read_from_their_beginning(topics: Topics) -> None:
    topic = topics.create(1)
    topics.send(topic, [b"1"])
    source = unbounded(topics, topic, starting_offsets=LATEST, discovery_interval=ms(1))
    run = Run(source)
    assert run.batch() == []
    topics.send(topic, [b"2"])
    topics.add_partitions(topic, 3)
    topics.send(topic, [b"3"], 2)
    found: list[int] = []
    deadline = time.monotonic() + LONG
    while len(found) < 2 and time.monotonic() < deadline:
        found += run.batch()
    assert sorted(found) == [2, 3]

    # The same at the next start, without discovery in between.
    topics.add_partitions(topic, 4)
    topics.send(topic, [b"4"], 3)
    topics.send(topic, [b"5"], 0)
    again = Run(unbounded(topics, topic, starting_offsets=LATEST, discovery_interval=None), run.offset)
    assert again.batch() + again.batch() == [4, 5]


def test_both_assigners_and_another_parallelism(topics: Topics) -> None:
    one, two = topics.create(4), topics.create(4)
    balanced = Run(unbounded(topics, one, two, split_assigner="round-robin"), parallelism=8)
    balanced.batch()
    assert sorted(balanced.owners().values()) == list(range(8))
    hashed = Run(unbounded(topics, one, two), parallelism=8)
    hashed.batch()
    for topic in (one, two):  # each topic is evenly distributed by itself
        assert len({hashed.owners()[f"{topic}-{number}"] for number in range(4)}) == 4
    again = Run(unbounded(topics, one, two), hashed.offset, parallelism=8)
    again.batch()
    assert again.owners() == hashed.owners()
    fewer = Run(unbounded(topics, one, two, split_assigner="round-robin"), hashed.offset, parallelism=3)
    fewer.batch()
    assert sorted(list(fewer.owners().values()).count(subtask) for subtask in range(3)) == [2, 3, 3]


def test_group_has_the_offsets_of_complete_micro_batches(topics: Topics) -> None:
    topic = topics.create(2)
    topics.send(topic, numbers(range(5)))
    run = Run(unbounded(topics, topic, group_id="shown"))
    run.batch(limit=3)
    assert topics.group_offsets("shown", topic).get(0, 0) == 0  # the micro-batch may still be repeated
    run.batch()
    assert eventually(lambda: topics.group_offsets("shown", topic), {0: 3, 1: 0})
    run.batch()
    assert eventually(lambda: topics.group_offsets("shown", topic), {0: 5, 1: 0})
    quiet = Run(unbounded(topics, topic, group_id="quiet", commit_offsets=False))
    quiet.batch()
    quiet.batch()
    quiet.driver.close()
    assert topics.group_offsets("quiet", topic) == {}


def eventually(ask: Any, wanted: Any) -> bool:
    deadline = time.monotonic() + LONG
    while (answer := ask()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(answer == wanted)


# --- Undecodable messages --------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(topics: Topics) -> str:
    """A topic with an undecodable message among its numbers."""
    topic = topics.create()
    topics.send(topic, [b"1", b"two", b"3"])
    return topic


@pytest.mark.parametrize("decode", [values(int), lambda message: int(message.value)])
def test_undecodable_message_fails_the_job(topics: Topics, mixed: str, decode: Any) -> None:
    with pytest.raises(UserFunctionError) as failed:
        read(source_of(topics, mixed, decode=decode))
    assert (failed.value.cause_type, failed.value.callback) == ("ValueError", "decode")
    assert failed.value.position is not None
    assert (failed.value.position.split, failed.value.position.offset) == (0, 1)
    assert (failed.value.record or "").startswith(f"KafkaMessage(topic={mixed!r}, partition=0, offset=1, ")


@pytest.mark.parametrize("decode", [values(int), lambda message: int(message.value)])
def test_undecodable_messages_are_skipped_or_set_aside(topics: Topics, mixed: str, decode: Any) -> None:
    env, good, bad = local_environment(2), CollectSink[int](), CollectSink[DeadLetter[KafkaMessage]]()
    stream = env.from_source(source_of(topics, mixed, decode=decode)).with_uid("in")
    stream.with_error_policy(ErrorPolicy().dead_letter(ValueError)).to_sink(good)
    stream.dead_letters(KafkaMessage).to_sink(bad)
    progress = env.execute("set aside").progress.operators["in"]
    assert (good.results, progress.counters) == ([1, 3], {"errors_dead_lettered": 1})
    [letter] = bad.results
    assert letter.position == RecordPosition("in", 0, 1)
    assert letter.record is not None
    assert (letter.record.offset, letter.record.value) == (1, b"two")


def test_position_names_the_topic_if_there_are_several(topics: Topics, mixed: str) -> None:
    env, sink = local_environment(2), CollectSink[int]()
    env.from_source(source_of(topics, mixed, topics.create())).with_uid("in").to_sink(sink)
    env.execute("several", skip_records={"in": [(f"{mixed}-0", 1)]})
    assert sink.results == [1, 3]


# --- Deleted data ----------------------------------------------------------------------------------------------------


def test_messages_deleted_before_they_were_read(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, numbers(range(10)))
    run = Run(unbounded(topics, topic))
    assert run.batch(limit=3) == [0, 1, 2]
    topics.delete_records(topic, 0, before=6)
    with pytest.raises(JobError, match=rf"Cannot read {topic}-0 at offset 3: it has offsets 6 to 10\. .*deleted"):
        run.batch()
    earliest = Run(unbounded(topics, topic, on_offsets_out_of_range="earliest"), run.offset)
    assert earliest.batch() + earliest.batch() == [6, 7, 8, 9]
    latest = Run(unbounded(topics, topic, on_offsets_out_of_range="latest"), run.offset)
    assert latest.batch() == []
    topics.send(topic, [b"10"])
    assert latest.batch() == [10]


def test_messages_deleted_after_planning(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, numbers(range(10)))
    run = Run(unbounded(topics, topic))
    run.batch(limit=8)
    topics.delete_records(topic, 0, before=6)
    with pytest.raises(JobError, match=rf"The messages of {topic}-0 from offset 0 on, which .* to 8, no longer exist"):
        run.repeated()
    tolerant = Run(unbounded(topics, topic, on_offsets_out_of_range="earliest"), run.offset)
    assert tolerant.repeated() == [6, 7]
    topics.delete_records(topic, 0, before=9)
    assert tolerant.repeated() == []
    assert tolerant.batch() + tolerant.batch() == [9]


def test_recreated_topic_may_be_read_from_its_beginning(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, numbers(range(10)))
    run = Run(unbounded(topics, topic, on_offsets_out_of_range="earliest"))
    run.batch()
    topics.delete(topic)
    topics.create(name=topic)
    topics.send(topic, [b"77"])
    assert run.batch() + run.batch() == [77]
    strict = Run(unbounded(topics, topic), {**run.offset})
    topics.send(topic, [b"78"])
    assert strict.batch() == [78]


def test_recreated_topic_is_detected(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, numbers(range(3)))
    run = Run(unbounded(topics, topic))
    assert run.batch() == [0, 1, 2]
    topics.delete(topic)
    topics.create(name=topic)
    topics.send(topic, numbers(range(10, 15)))  # enough messages for the offset to exist again
    with pytest.raises(
        JobError,
        match=rf"The topic {topic} was deleted and created again\. .* {topic}-0 of the old topic up to offset 3\.",
    ):
        Run(unbounded(topics, topic), run.offset).batch()
    earliest = Run(unbounded(topics, topic, on_offsets_out_of_range="earliest"), run.offset)
    assert earliest.batch() + earliest.batch() == [10, 11, 12, 13, 14]
    assert Run(unbounded(topics, topic), earliest.offset).batch() == []
    latest = Run(unbounded(topics, topic, on_offsets_out_of_range="latest"), run.offset)
    assert latest.batch() == []
    topics.send(topic, [b"15"])
    assert latest.batch() == [15]


def test_partition_that_disappears(topics: Topics) -> None:
    topic, other = topics.create(), topics.create()
    topics.send(topic, [b"1"])
    run = Run(unbounded(topics, topic, other))
    assert run.batch() == [1]
    tolerant = Run(unbounded(topics, topic, other, on_offsets_out_of_range="latest"), run.offset)
    assert tolerant.batch() == []
    topics.delete(topic)
    with pytest.raises(JobError, match=rf"{topic}-0 no longer exists\. The job has read it up to offset 1\. If its"):
        run.batch()
    topics.send(other, [b"2"])
    assert tolerant.batch() == [2]
    assert list(tolerant.owners()) == [f"{other}-0"]
    # At a restart the job fails because of it. Without the topic it continues.
    with pytest.raises(JobError, match=rf"Topic {topic} does not exist\. Create it, or remove it"):
        Run(unbounded(topics, topic, other), run.offset).batch()
    without = Run(unbounded(topics, other), run.offset)
    assert without.batch() == [2]
    assert list(without.owners()) == [f"{other}-0"]


# --- Unreachable brokers ---------------------------------------------------------------------------------------------


def test_unreachable_broker_fails_the_job_after_the_timeout(topics: Topics) -> None:
    source = KafkaSource[int]("127.0.0.1:1", decode=values(int), topics="t", retry_timeout=ms(1_000))
    with pytest.raises(JobError) as failed:
        Run(source).batch()
    assert "Cannot list topics at 127.0.0.1:1. The brokers do not answer" in str(failed.value)


def test_late_broker_is_waited_for(restarted_kafka_broker: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    topics = Topics(restarted_kafka_broker.bootstrap_servers)
    topic = topics.create()
    topics.send(topic, [b"1"])
    run = Run(unbounded(topics, topic, retry_timeout=ms(1000 * LONG)))
    with restarted_after_a_retry(restarted_kafka_broker, caplog):
        assert run.batch() == [1]
    assert "The brokers do not answer" in caplog.text
    assert "Retrying." in caplog.text


def test_broker_crash_neither_loses_nor_repeats_messages(restarted_kafka_broker: KafkaBroker) -> None:
    topics = Topics(restarted_kafka_broker.bootstrap_servers)
    topic = topics.create()
    count = 120_000
    topics.send(topic, (b"%010d" % number * 20 for number in range(count)))
    little = {"queued.min.messages": 5_000}  # so that most of them are still at the broker when it crashes
    decode = values(lambda value: int(value[:10]))
    source = source_of(topics, topic, decode=decode, retry_timeout=ms(1000 * LONG), options=little)
    reader: SourceReader[int, KafkaSplit] = source.create_reader(Reader())
    batches = reader.read(KafkaSplit(topic, 0, 0), KafkaSplit(topic, 0, count))
    seen = list(next(batches).records)
    restarted_kafka_broker.kill()
    late = threading.Timer(1.0, restarted_kafka_broker.start)
    late.start()
    try:
        seen += [record for batch in batches for record in batch.records]
    finally:
        late.join()
    assert seen == list(range(count))


def secured(broker: KafkaBroker, **options: Any) -> KafkaSource[int]:
    login = {"sasl.username": USER, "sasl.password": PASSWORD, "sasl.mechanism": "PLAIN"}
    tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(broker.certificate)}
    return KafkaSource(
        broker.secured_servers,
        decode=values(int),
        topics="secured",
        stopping_offsets=LATEST,
        retry_timeout=ms(600_000),  # longer than a test may take: wrong options are not retried
        options={**login, **tls, **options},
    )


@pytest.fixture(scope="module")
def secured_topic(topics: Topics) -> Iterator[str]:
    topic = topics.create(name="secured")
    topics.send(topic, [b"1"])
    yield topic
    topics.delete(topic)


@pytest.mark.usefixtures("secured_topic")
def test_tls_and_a_password(kafka_broker: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert read(secured(kafka_broker)) == [1]
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(secured(kafka_broker))


@pytest.mark.usefixtures("secured_topic")
def test_expired_credentials_fail_tasks_at_once(kafka_broker: KafkaBroker) -> None:
    reader = secured(kafka_broker, **{"sasl.password": "wr-ng"}).create_reader(Reader())
    with pytest.raises(JobError, match=r"Cannot read secured-0 at .* The brokers rejected the credentials") as failed:
        next(reader.read(KafkaSplit("secured", 0, 0), KafkaSplit("secured", 0, 1)))
    reader.close()
    assert "wr-ng" not in str(failed.value)


@pytest.mark.usefixtures("secured_topic")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sasl.password": "wr-ng"}, "The brokers rejected the credentials"),
        (
            {"ssl.ca.location": "/etc/hostname"},
            "A secure connection to the brokers could not be established|rejected the options",
        ),
    ],
)
def test_wrong_options_fail_at_once_and_show_no_secret(
    kafka_broker: KafkaBroker, options: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = secured(kafka_broker, **options)
    with caplog.at_level(logging.DEBUG), pytest.raises(JobError, match=told) as failed:
        read(source)
    for secret in (PASSWORD, "wr-ng"):
        assert secret not in str(failed.value) + caplog.text


def test_options_of_the_connector_are_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"KafkaSource sets the option 'group.id' itself\. Use group_id instead\."
    ):
        KafkaSource[int]("host:1", decode=values(int), topics="t", options={"group.id": "g"})
