"""``KafkaSink`` and ``PostgresSink`` on real servers: micro-batches that are refused, and their errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import psycopg
import pytest

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from dsv2.connectors.kafka import KafkaSink
from dsv2.connectors.postgres import PostgresSink
from dsv2.errors import JobError
from dsv2.model import RecordBatch
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo, SinkRunInfo
from tests.durations import ms
from tests.kafka_topics import Topics

NUMBERS = itertools.count()
RUN = SinkRunInfo("run")


class Output(NamedTuple):
    """A sink of numbers, and the numbers that readers see."""

    sink: ParallelSink[int]
    numbers: Callable[[], list[int]]
    job: str

    def begin(self, batch_id: int, parallelism: int = 2, run: SinkRunInfo = RUN) -> None:
        self.sink.begin(SinkInfo(self.job, "out", parallelism, run), batch_id)

    def write(self, batch_id: int, number: int, subtask: int = 0, parallelism: int = 2, run: SinkRunInfo = RUN) -> None:
        info = SinkInfo(self.job, "out", parallelism, run)
        self.sink.write(SinkBatch(info, subtask, batch_id, iter([RecordBatch([number])])))


def to_kafka(broker: KafkaBroker) -> Output:
    topics = Topics(broker.bootstrap_servers)
    topic = topics.create(2)

    def numbers() -> list[int]:
        return sorted(int(value) for values in topics.committed(topic).values() for value in values)

    sink = KafkaSink[int](broker.bootstrap_servers, topic, lambda number: b"%d" % number, retry_timeout=ms(120_000))
    return Output(sink, numbers, f"sinks-{next(NUMBERS)}")


def to_postgres(server: PostgresServer) -> Output:
    table = f"numbers_{next(NUMBERS)}"
    with psycopg.connect(server.conninfo) as connection:
        connection.execute(f"CREATE TABLE {table} (number int)".encode())

    def row(number: int) -> Sequence[int]:
        return [number]

    def numbers() -> list[int]:
        with psycopg.connect(server.conninfo) as connection:
            return sorted(number for (number,) in connection.execute(f"SELECT number FROM {table}".encode()))

    return Output(PostgresSink[int](server.conninfo, table, ["number"], row=row), numbers, f"job-{table}")


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("kafka", "postgres")])
def output(request: pytest.FixtureRequest) -> Output:
    if request.param == "kafka":
        return to_kafka(request.getfixturevalue("kafka_broker"))
    return to_postgres(request.getfixturevalue("postgres_server"))


def test_batches_of_another_history_are_refused(output: Output) -> None:
    """The job was at micro-batch 2 when an older checkpoint was restored."""
    first, repeating = SinkRunInfo("a"), SinkRunInfo("b", 1, ("a",))
    output.begin(0, run=first)
    output.write(0, 1, run=first)
    output.write(1, 2, run=first)
    output.begin(1, run=repeating)
    output.write(1, 2, run=repeating)
    output.write(1, 3, subtask=1, run=repeating)
    output.write(2, 4, run=repeating)
    for back in (SinkRunInfo("c", 1), SinkRunInfo("c", 2), SinkRunInfo("c", 1, ("b",))):
        with pytest.raises(JobError, match="The sink already has micro-batch 2 from a run that is not in"):
            output.begin(back.first_batch, run=back)
        with pytest.raises(JobError, match="The sink already has micro-batch 2"):
            output.write(back.first_batch, 5, run=back)
    with pytest.raises(JobError, match="The sink already has micro-batch 2"):
        output.write(2, 4, run=first)  # by a driver that was suspended while another one continued
    output.begin(2, run=SinkRunInfo("c", 2, ("b",)))
    assert output.numbers() == [1, 2, 3, 4]


def test_another_parallelism_within_a_batch_is_refused(output: Output) -> None:
    output.begin(0, parallelism=3)
    output.write(0, 2, subtask=2, parallelism=3)  # the others had not got this far
    with pytest.raises(JobError) as refused:
        output.begin(0, parallelism=2)
    assert str(refused.value) == (
        "Micro-batch 0 was written in part by 3 subtasks before the job failed, and 2 subtasks cannot write the rest. "
        "Start the job with parallelism 3 for this sink, and change the parallelism after that micro-batch is complete."
    )
    output.begin(0, parallelism=3)
    output.write(0, 2, subtask=2, parallelism=3)
    output.write(0, 1, subtask=1, parallelism=3)
    output.begin(1, parallelism=2)
    assert output.numbers() == [1, 2]
