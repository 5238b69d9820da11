"""Sends messages to one topic at a constant rate, and measures when they appear in another one.

It runs in a separate process, so that it competes for cores but not for a Python interpreter:
``python -m benchmarks.common.kafka_load SERVERS IN OUT RATE WARM_UP SECONDS`` prints the latencies as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

__all__ = ("READERS", "Latencies")

READERS = ("read_committed", "read_uncommitted")
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.001


@dataclass(frozen=True)
class Latencies:
    """The number of messages, and percentiles of their latencies in ms."""

    messages: int
    p50: float
    p90: float
    p99: float
    longest: float

    @staticmethod
    def of(latencies: Sequence[float]) -> Latencies:
        """Compute the percentiles of at least two latencies."""
        percentiles = statistics.quantiles(latencies, n=100, method="inclusive")
        return Latencies(len(latencies), percentiles[49], percentiles[89], percentiles[98], max(latencies))


class _Watcher(threading.Thread):
    """Reads ``topic`` from its end up to message ``last``, and records the latencies of messages from ``first`` on."""

    def __init__(self, config: Mapping[str, Any], topic: str, isolation: str, first: int, last: int) -> None:
        super().__init__(daemon=True)
        self.latencies: list[float] = []
        self._first, self._last = first, last
        self._consumer = Consumer(
            {**config, "group.id": "latency", "isolation.level": isolation, "fetch.wait.max.ms": 10}
        )
        ends = _ends(config, topic)
        self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in ends.items()])

    def run(self) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        missing = self._last - self._first + 1
        while len(self.latencies) < missing and time.monotonic() < deadline:
            for message in self._consumer.consume(1000, 0.01):
                now = time.time_ns()
                assert message.error() is None, message.error()
                number, sent = map(int, (message.value() or b"").split())
                deadline = time.monotonic() + _PATIENCE_SECONDS
                if number >= self._first:
                    self.latencies.append((now - sent) / 1e6)
        self._consumer.close()


def _ends(config: Mapping[str, Any], topic: str) -> dict[tuple[str, int], int]:
    admin = AdminClient(dict(config))
    parts = [TopicPartition(topic, number) for number in admin.list_topics(topic).topics[topic].partitions]
    request = {part: OffsetSpec.latest() for part in parts}
    found = admin.list_offsets(request, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    return {(part.topic, part.partition): future.result().offset for part, future in found.items()}


def _send(config: Mapping[str, Any], topic: str, rate: int, count: int) -> None:
    producer = Producer({**config, "linger.ms": 0})
    begin, sent = time.monotonic(), 0
    while sent < count:
        due = min(count, int((time.monotonic() - begin) * rate) + 1)
        for number in range(sent, due):
            producer.produce(topic, b"%d %d" % (number, time.time_ns()))
        sent = due
        producer.poll(0)
        time.sleep(_PAUSE_SECONDS)
    producer.flush()


def main(servers: str, topic_in: str, topic_out: str, rate: str, warm_up: str, seconds: str) -> None:
    """Send messages for ``warm_up`` and then ``seconds``. Print the ``Latencies`` of the latter for each reader."""
    config = {"bootstrap.servers": servers}
    first, count = int(rate) * int(warm_up), int(rate) * (int(warm_up) + int(seconds))
    watchers = {reader: _Watcher(config, topic_out, reader, first, count - 1) for reader in READERS}
    for watcher in watchers.values():
        watcher.start()
    _send(config, topic_in, int(rate), count)
    for watcher in watchers.values():
        watcher.join()
    print(json.dumps({reader: asdict(Latencies.of(watcher.latencies)) for reader, watcher in watchers.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
