"""Local jobs that read from servers and write to them: exactly once, although they are killed at each step."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from dsv2 import ExecutionEnvironment, Trigger
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from dsv2.connectors.postgres import PostgresSink, batch_ledger
from dsv2.local import LocalRuntime
from dsv2.sinks import ParallelSink
from dsv2.sources import DataGeneratorSource
from dsv2.testing import ManualClock
from tests.kafka_topics import Topics
from tests.numbering import Numbering
from tests.steps import KilledError, Steps, steps_of, steps_of_files


def last_bit(number: int) -> int:
    return number % 2


def pair_of(key: int, number: int, nth: int) -> tuple[int, int]:
    return number, nth


def itself(number: int) -> int:
    return number


def text_of(pair: tuple[int, int]) -> bytes:
    return f"{pair[0]} {pair[1]}".encode()


def kill_after_writes(monkeypatch: pytest.MonkeyPatch, sink: type[ParallelSink[Any]], step: Callable[[], None]) -> None:
    write = sink.write

    def written(self: Any, batch: Any) -> None:
        write(self, batch)
        step()

    monkeypatch.setattr(sink, "write", written)


@pytest.mark.kafka
@pytest.mark.slow
def test_from_kafka_to_kafka(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    topics = Topics(kafka_broker.bootstrap_servers)
    numbers, counts = topics.create(2), topics.create(1)

    def run(step: Callable[[], None]) -> None:
        env = ExecutionEnvironment.get_instance(runtime="local")
        env.set_parallelism(2)
        source = KafkaSource(topics.bootstrap_servers, topics=[numbers], decode=values(int), records_per_batch=3)
        counted = env.from_source(source, "numbers").key_by(itself).process(Numbering(pair_of)).with_uid("count")
        counted.to_sink(KafkaSink(topics.bootstrap_servers, counts, text_of)).with_uid("counts")
        with pytest.MonkeyPatch.context() as patch, steps_of_files(step):
            kill_after_writes(patch, KafkaSink, step)
            env.execute("count", checkpoint_location=tmp_path, trigger=Trigger.available_now())

    expected = Counter[str]()
    for turn in range(1, 4):
        for partition in range(2):
            topics.send(numbers, [b"%d" % number for number in range(4)], partition)
        expected.update(f"{number} {2 * turn + before}" for number in range(4) for before in (-1, 0))
        with suppress(KilledError):
            run(Steps(3 + 5 * turn))
        run(lambda: None)
        found = [value.decode() for found in topics.committed(counts).values() for value in found]
        assert Counter(found) == expected


@pytest.mark.postgres
def test_rows_are_inserted_once_although_the_job_is_killed_at_any_step(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Also within a transaction: after its rows, and after the number of the micro-batch."""

    def run(table: str, step: Callable[[], None]) -> None:
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(), checks=False))
        env.set_parallelism(2)
        numbers = env.from_source(DataGeneratorSource(last_bit, count=4, records_per_batch=2)).with_uid("numbers")
        counted = numbers.key_by(itself).process(Numbering(pair_of)).with_uid("count")
        counted.to_sink(PostgresSink(postgres_server.conninfo, table, ["number", "nth"])).with_uid("counts")
        transaction = (PostgresSink, "write"), (batch_ledger, "_write_rows"), (batch_ledger.BatchLedger, "_update")
        with steps_of_files(step), steps_of(step, *transaction):
            env.execute("count", checkpoint_location=tmp_path / table)

    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        for number in itertools.count():
            table, steps = f"killed_{number}", Steps(number)
            connection.execute(f"CREATE TABLE {table} (number int, nth int)".encode())
            with suppress(KilledError):
                run(table, steps)
            if steps.left >= 0:
                break
            run(table, lambda: None)
            rows = connection.execute(f"SELECT number, nth FROM {table} ORDER BY number, nth".encode()).fetchall()
            assert rows == [(0, 1), (0, 2), (1, 1), (1, 2)], number
    assert number > 30
