"""A local job that waits for messages from Kafka: its CPU time while there are none, and the delay of single messages.

The job passes the values of two partitions to a sink in its process, with a durable checkpoint. Its CPU time is that of
this process. Then one message after the other is sent, with pauses. Their delay is the time from the call that sends
one to the call of the sink, so it includes a micro-batch and a commit to the disk.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.common.kafka_topics import Topics
from benchmarks.common.machine import machine
from benchmarks.common.report import Arguments, Report
from components.kafka import KafkaBroker
from dsv2 import ExecutionEnvironment, JobHandle
from dsv2.connectors.kafka import KafkaSource, values
from dsv2.local import LocalRuntime
from dsv2.sinks import ForeachBatchSink

__all__ = ("main",)

NAME = "idle"
SHORT = {"seconds": 1.0, "messages": 3}
MOST = 2.0
"""The maximum CPU time of an idle job, in percent of a core."""

_PARTITIONS = 2
_PAUSE_SECONDS = 0.15
_QUIET_SECONDS = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="idle seconds that are measured (10)")
    parser.add_argument("--messages", type=int, default=100, help="messages (100)")
    options = parser.parse(arguments, SHORT)
    report = Report(NAME, "An idle job", {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), **machine()})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kafka").mkdir()
        broker = KafkaBroker(Path(folder) / "kafka")
        broker.start()
        try:
            idle, delays = measured(broker.bootstrap_servers, folder, options.seconds, options.messages)
        finally:
            broker.stop()
    report.table("While there are no messages", ("CPU time, % of a core",), [(round(100 * idle, 1),)])
    quantiles = [round(1000 * delay, 1) for delay in (min(delays), statistics.median(delays), max(delays))]
    report.table("Delay of a message, ms", ("least", "median", "most"), [quantiles])
    report.at_most("CPU time while there are no messages, % of a core", round(100 * idle, 1), MOST)
    report.publish(options.results)
    return 0


def measured(servers: str, folder: str, seconds: float, messages: int) -> tuple[float, list[float]]:
    """Run the job. Returns its share of a core while it is idle, and the delays in seconds."""
    topic, producer = Topics(servers).create(_PARTITIONS), Producer({"bootstrap.servers": servers, "linger.ms": 0})
    delays: list[float] = []

    def note(sent: Sequence[float], batch_id: int) -> None:
        delays.extend(time.time() - moment for moment in sent)

    def send(number: int) -> None:
        producer.produce(topic, repr(time.time()).encode(), partition=number % _PARTITIONS)
        producer.flush()

    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
    env.set_parallelism(_PARTITIONS)
    source = KafkaSource(servers, topics=topic, decode=values(float))
    env.from_source(source).with_uid("messages").to_sink(ForeachBatchSink(note)).with_uid("delays")
    job = env.execute_async("idle", checkpoint_location=f"{folder}/checkpoint")
    send(0)
    _await(delays, 1, job)
    time.sleep(_QUIET_SECONDS)
    begun, cpu = time.monotonic(), time.process_time()
    time.sleep(seconds)
    idle = (time.process_time() - cpu) / (time.monotonic() - begun)
    delays.clear()
    for number in range(messages):
        send(number)
        time.sleep(_PAUSE_SECONDS)
    _await(delays, messages, job)
    job.stop()
    return idle, delays


def _await(delays: Sequence[float], number: int, job: JobHandle) -> None:
    while len(delays) < number:
        if (error := job.exception()) is not None:
            raise error
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
