"""Committed offsets of consumer groups: an answer that is no error as a whole may refuse partitions."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from components.kafka import KafkaBroker
from dsv2 import JobError
from dsv2.base.clock import Clock, SystemClock
from dsv2.connectors.kafka import broker as broker_module
from dsv2.connectors.kafka.broker import Broker, CommittedOffset
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.testing import ManualClock
from tests import ROOT
from tests.durations import ms
from tests.kafka_topics import Topics

PLACES = [TopicPartition("readings", number) for number in range(3)]


def broker_of(
    servers: str, group: str, retry_timeout: timedelta = timedelta(minutes=2), clock: Clock | None = None
) -> Broker:
    return Broker(KafkaConnection("A test", servers, {}, retry_timeout, group), clock or SystemClock())


def some_attempts() -> Clock:
    """A clock that lets a request with the default ``retry_timeout`` be tried twice, however slow the machine is."""
    return ManualClock(step=timedelta(seconds=30))


# --- A real broker ---------------------------------------------------------------------------------------------------


def test_pending_transactional_offsets_are_waited_for(topics: Topics) -> None:
    place = TopicPartition(topics.create(), 0)
    broker = broker_of(topics.bootstrap_servers, "unstable")
    impatient = broker_of(topics.bootstrap_servers, "unstable", retry_timeout=ms(300))
    broker.set_group_offset("unstable", place, CommittedOffset(5))
    transaction = topics.transaction(place.topic).set_group_offset("unstable", 9)
    with pytest.raises(JobError, match=r"Cannot read the offsets of consumer group 'unstable'.* an open transaction"):
        impatient.committed([place])
    transaction.commit()
    assert broker.committed([place]) == {place: 9}  # retry, because the broker may still be busy
    broker.close()
    impatient.close()


@pytest.mark.usefixtures("patient_requests")
def test_refused_partition_is_an_error(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    place, missing = TopicPartition(topics.create(), 0), TopicPartition("no-such-topic", 0)
    broker = broker_of(topics.bootstrap_servers, "refused", clock=some_attempts())
    with pytest.raises(JobError, match=r"Cannot set the offset of consumer group 'refused'.*UNKNOWN_TOPIC_OR_PART"):
        broker.set_group_offset("refused", missing, CommittedOffset(1))
    caplog.set_level(logging.WARNING)
    broker.commit({place: 1, missing: 2})
    broker.close()
    told = [record.getMessage() for record in caplog.records if "were not committed" in record.getMessage()]
    assert len(told) == 1  # not tried again
    assert told[0].startswith("Offsets were not committed to consumer group 'refused': no-such-topic-0: ")
    assert topics.group_offsets("refused", place.topic) == {0: 1}


def test_committed_message_is_waited_for(topics: Topics) -> None:
    place = TopicPartition(topics.create(), 0)
    broker = broker_of(topics.bootstrap_servers, "waiting")

    def is_there(offset: int, *, times: int) -> bool:
        return any(broker.wait({place: offset}, ms(100)) for _ in range(times))

    assert not is_there(0, times=3)
    transaction = topics.transaction(place.topic).send(b"one", b"two")
    assert not is_there(0, times=3)
    transaction.commit()
    assert is_there(0, times=200)
    assert is_there(1, times=200)
    assert not is_there(3, times=3)  # after the two messages and the end of the transaction
    topics.send(place.topic, [b"three"])
    assert is_there(3, times=200)
    assert is_there(0, times=200)  # back again
    broker.close()


# In a separate process because librdkafka used to crash it. Answers come too late on a loaded machine.
IMPATIENT = """
import faulthandler, itertools, logging, sys
faulthandler.enable()
from datetime import timedelta
from dsv2.base.clock import SystemClock
from dsv2.connectors.kafka import broker as module
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.split import TopicPartition

module._FIRST_PAUSE_SECONDS = 0.0
logging.disable()
servers, topic = sys.argv[1:]
broker = module.Broker(KafkaConnection("A test", servers, {}, timedelta(minutes=2)), SystemClock())
place = TopicPartition(topic, 0)
for number in range(300):
    module._FIRST_ANSWER_SECONDS = (1 + number % 10) / 1000
    assert broker.latest([place]) == broker.earliest([place]) == {place: 0}
    assert broker.topic_ids([topic])
    broker.set_group_offset(f"impatient-{number}", place, module.CommittedOffset(number))
    assert broker.group_offset(f"impatient-{number}", place).offset == number
broker.close()
"""


def test_late_answers_are_harmless(topics: Topics) -> None:
    command = [sys.executable, "-c", IMPATIENT, topics.bootstrap_servers, topics.create()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")


# In a separate process because an admin client crashed it. The first request about a group makes the broker create the
# offsets topic, and until the broker is the coordinator, it answers that it is not.
EARLY = """
import faulthandler, logging, sys
from datetime import timedelta
from threading import Thread
faulthandler.enable()
from dsv2.base.clock import SystemClock
from dsv2.connectors.kafka.broker import Broker
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.split import TopicPartition

logging.disable()
servers, topic = sys.argv[1:]

def ask(name):
    for number in range(20):
        broker = Broker(KafkaConnection("A test", servers, {}, timedelta(minutes=1)), SystemClock())
        assert broker.group_offset(f"{name}-{number}", TopicPartition(topic, 0)) is None
        broker.close()

threads = [Thread(target=ask, args=(f"early-{number}",)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("asked")
"""


@pytest.mark.nightly
def test_broker_that_is_not_yet_coordinator_is_harmless(own_kafka_broker: KafkaBroker) -> None:
    servers = own_kafka_broker.bootstrap_servers
    command = [sys.executable, "-c", EARLY, servers, Topics(servers).create()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "asked\n", "")


# --- Answers while a coordinator starts ------------------------------------------------------------------------------


class Coordinator:
    """Replaces the client. A test scripts the result of each commit."""

    def __init__(self) -> None:
        self.asked: list[dict[TopicPartition, int]] = []
        self.clients = 0
        self.answers: Iterator[Sequence[int] | int | None] = iter(())

    def __call__(self, config: Mapping[str, object], **options: object) -> Coordinator:
        self.clients += 1
        return self

    def alter_consumer_group_offsets(
        self, requests: list[ConsumerGroupTopicPartitions], **options: Any
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """The next of ``answers``: a code for each partition, one for the request, or None for no answer."""
        (request,) = requests
        parts = request.topic_partitions or []
        self.asked.append({TopicPartition(part.topic, part.partition): part.offset for part in parts})
        future = Future[ConsumerGroupTopicPartitions]()
        codes = next(self.answers, [KafkaError.NO_ERROR] * len(parts))
        if isinstance(codes, int):
            future.set_exception(KafkaException(KafkaError(codes)))
        elif codes is not None:
            answered: list[Any] = [Answered(part, code) for part, code in zip(parts, codes, strict=True)]
            future.set_result(ConsumerGroupTopicPartitions(request.group_id, answered))
        return {request.group_id: future}

    def poll(self, timeout: float) -> None:
        """Serve no callbacks."""


class Answered:
    """A partition in an answer. One with an error cannot be created from Python."""

    def __init__(self, part: confluent_kafka.TopicPartition, code: int) -> None:
        self.topic, self.partition = part.topic, part.partition
        self.error = KafkaError(code) if code else None


LOADING, MOVED = KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR
GONE, DENIED = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_AUTHORIZATION_FAILED


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    coordinator = Coordinator()
    monkeypatch.setattr(broker_module, "AdminClient", coordinator)
    return coordinator


@pytest.mark.parametrize("answer", [[LOADING, 0], [MOVED, 0]])
def test_uncommitted_partition_is_retried_with_the_next_commit(coordinator: Coordinator, answer: Sequence[int]) -> None:
    coordinator.answers = iter([answer])
    broker = broker_of("nowhere:1", "group")
    broker.commit({PLACES[0]: 1, PLACES[1]: 2})
    broker.commit({PLACES[1]: 3, PLACES[2]: 4})
    broker.commit({PLACES[1]: 5})
    assert coordinator.asked[1:] == [{PLACES[0]: 1, PLACES[1]: 3, PLACES[2]: 4}, {PLACES[1]: 5}]
    assert coordinator.clients == 2  # a client with this error does not always find the coordinator again


def test_newer_offsets_replace_uncommitted_ones(coordinator: Coordinator) -> None:
    coordinator.answers = iter([LOADING])
    broker = broker_of("nowhere:1", "group")
    broker.commit({PLACES[0]: 1, PLACES[1]: 2})
    broker.commit({PLACES[0]: 3})
    assert coordinator.asked[1] == {PLACES[0]: 3, PLACES[1]: 2}


@pytest.mark.parametrize("answer", [[GONE], DENIED, [KafkaError.UNKNOWN_MEMBER_ID]])
def test_permanent_errors_are_not_retried(
    coordinator: Coordinator, answer: Sequence[int] | int, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.answers = iter([answer])
    broker = broker_of("nowhere:1", "group")
    broker.commit({PLACES[0]: 1})
    assert "were not committed to consumer group 'group'" in caplog.text
    broker.commit({PLACES[1]: 2})
    broker.close()
    assert coordinator.asked[1:] == [{PLACES[1]: 2}]
    assert coordinator.clients == 1


def test_unanswered_commit_is_retried_by_the_same_client(coordinator: Coordinator) -> None:
    coordinator.answers = iter([None])
    broker = broker_of("nowhere:1", "group")
    broker.commit({PLACES[0]: 1})
    broker.commit({PLACES[1]: 2})
    assert coordinator.asked[1] == {PLACES[0]: 1, PLACES[1]: 2}
    assert coordinator.clients == 1


def test_last_commit_is_retried_until_it_succeeds(coordinator: Coordinator) -> None:
    coordinator.answers = iter([[LOADING], MOVED])
    broker = broker_of("nowhere:1", "group")
    broker.commit({PLACES[0]: 1})
    broker.close()
    assert coordinator.asked == [{PLACES[0]: 1}] * 3


@pytest.mark.parametrize(
    ("answer_seconds", "reason"),
    [
        (2.0, r"The request failed \(UNKNOWN_TOPIC_OR_PART"),  # the deadline left the second attempt less time
        (0.001, r"The brokers do not answer \(_TIMED_OUT"),
    ],
)
def test_unanswered_attempt_after_a_refused_one(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, answer_seconds: float, reason: str
) -> None:
    monkeypatch.setattr(broker_module, "_FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(broker_module, "_FIRST_ANSWER_SECONDS", answer_seconds)
    coordinator.answers = iter([[GONE], None])
    broker = broker_of("nowhere:1", "group", retry_timeout=ms(300), clock=ManualClock(step=ms(100)))
    with pytest.raises(JobError, match=rf"Cannot set the offset of consumer group 'group' at nowhere:1\. {reason}"):
        broker.set_group_offset("group", PLACES[0], CommittedOffset(1))
    assert len(coordinator.asked) == 2
