"""A job that is upgraded again and again: another parallelism, layout and number of partitions, other operators.

It reads splits, keeps keyed state, timers and fields, and writes to files and, if there are servers, to Kafka and
PostgreSQL. A process of this job carries out a ``Script``.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from dsv2 import Collector, JobHandle, JobStatus, PartitionedContext, Trigger
from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.folder_kinds import FolderKind, kind_of_folder
from dsv2.connectors.kafka import KafkaSink
from dsv2.connectors.postgres import PostgresSink
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local.command_line import create
from dsv2.sinks import FileSink
from dsv2.state import StateDeclaration, StateDeclarations
from storms.common.outputs import Output, read_files
from storms.common.processes import Gate
from storms.common.runtimes import environment, rolling_files
from tests.kafka_topics import Topics
from tests.spans import Item, Spans, everything

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("GATES", "RECORDS", "Outputs", "Program", "Script", "expected", "run")

SPLITS = 3
RECORDS = 2_000
"""The number of records of a split."""
LIMIT = 50  # records of a split in a micro-batch
KEYS = 23
TIMER_EVERY = 10
DELAY = 500  # ms
COUNT = StateDeclarations.value_state("count", int, default=0)
FIRED = StateDeclarations.value_state("fired", int, default=0)
LAST = StateDeclarations.value_state("last", int)
GATES = {"Kafka begun": "message", "Kafka written": "row"}
"""The gates that are before a phase of a micro-batch."""
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class Program:
    """A version of the program.

    Attributes:
        parallelism: Of the source and of the keyed function.
        partitions: The number of Spark tasks of a stage.
        layout: The state layout on Spark, or the number of processes on the local runtime.
        mapped: Whether a stateless operator follows the source.
        remembered: Whether a function with state of its own follows it.
        renamed: Whether the class of the keyed function has its second name.
        evolved: Whether the class of the record that it keeps for each key has its second form.
    """

    parallelism: int = 2
    partitions: int = 2
    layout: str = "blob"
    mapped: bool = False
    remembered: bool = False
    renamed: bool = False
    evolved: bool = False

    def changed(self, chance: random.Random) -> Program:
        """Return another program, which cannot continue with the state as it is."""
        choose = chance.choice
        return Program(
            parallelism=choose([number for number in range(1, 5) if number != self.parallelism]),
            partitions=choose((1, 2, 3)),
            layout=choose(("blob", "map") if not self.layout.isdigit() else (self.layout, "3")),
            mapped=choose((False, True)),
            remembered=choose((False, True)),
            renamed=choose((False, True)),
            evolved=choose((False, True)),
        )


@dataclass(frozen=True)
class Script:
    """The task of a process.

    Attributes:
        program: The program that runs; None: none.
        checkpoint: The name of its checkpoint.
        savepoint: The name of the savepoint with which the checkpoint began.
        create: The names of a checkpoint and of a new savepoint of it, which is created before the program starts.
        take: How the program takes a savepoint after two micro-batches: "stopping" or "running"; None: not at all.
        into: The name of that savepoint.
        records: The number of records of a split.
        interval: The time between micro-batches, in seconds; None: one after another.
    """

    program: Program | None
    checkpoint: str
    savepoint: str | None = None
    create: tuple[str, str] | None = None
    take: str | None = None
    into: str = ""
    records: int = RECORDS
    interval: int | None = None

    def encoded(self) -> str:
        """The argument for ``run``."""
        return json.dumps(asdict(self))

    @staticmethod
    def decoded(text: str) -> Script:
        """The inverse of ``encoded``."""
        entry: dict[str, Any] = json.loads(text)
        program = None if entry["program"] is None else Program(**entry["program"])
        return Script(**entry | {"program": program})


class Counted(NamedTuple):
    key: int
    what: str
    nth: int


class Total(NamedTuple):
    records: int


def spans(records: int) -> dict[str, int]:
    """The number of records of each split, by its name."""
    return {f"span-{number}": records for number in range(SPLITS)}


def key_of(item: Item) -> int:
    return item.number % KEYS


def same(item: Item) -> Item:
    return item


class Count(OneInputStreamProcessFunction[Item, Counted]):
    """Numbers the records of each key in a state, in a record and in a field, and each tenth of them in a timer."""

    keyed_fields = ("counts",)

    def __init__(self, tally: type[Any]) -> None:
        self.counts: dict[int, int] = {}
        self.tally = tally
        self.tallies = StateDeclarations.value_state("tally", tally)

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT, FIRED, self.tallies]

    def process_record(self, record: Item, output: Collector[Counted], ctx: PartitionedContext[Counted]) -> None:
        key, count = key_of(record), ctx.state_manager.get_state(COUNT)
        nth = count.value() + 1
        count.update(nth)
        self.counts[key] = self.counts.get(key, 0) + 1
        output.collect(Counted(key, "state", nth))
        output.collect(Counted(key, "field", self.counts[key]))
        tallies = ctx.state_manager.get_state(self.tallies)
        tally = tallies.value() or self.tally()
        tallies.update(self.tally(records=tally.records + 1, last=record.number))
        output.collect(Counted(key, "record", tally.records + 1))
        output.collect(Counted(key, record.span, record.number))
        if nth % TIMER_EVERY == 0:
            timers = ctx.processing_time_manager
            timers.register_timer(timers.current_time() + DELAY + nth)  # later than all others of the key

    def on_processing_timer(self, timestamp: int, output: Collector[Counted], ctx: PartitionedContext[Counted]) -> None:
        fired = ctx.state_manager.get_state(FIRED)
        fired.update(fired.value() + 1)
        key = ctx.state_manager.current_key
        assert isinstance(key, int)
        output.collect(Counted(key, "timer", fired.value()))


class CountRenamed(Count):
    """The same under another name."""


class Remember(OneInputStreamProcessFunction[Item, Item]):
    """Keeps the last number of each key, and passes records on."""

    def uses_states(self) -> list[StateDeclaration]:
        return [LAST]

    def process_record(self, record: Item, output: Collector[Item], ctx: PartitionedContext[Item]) -> None:
        ctx.state_manager.get_state(LAST).update(record.number)
        output.collect(record)


class CountAll(OneInputStreamProcessFunction[Counted, Total]):
    """Numbers all records, in a field."""

    def __init__(self) -> None:
        self.total = 0

    def process_record(self, record: Counted, output: Collector[Total], ctx: PartitionedContext[Total]) -> None:
        self.total += 1
        output.collect(Total(self.total))


class Encode:
    """Encodes records as values of messages, and as rows of the table. A gate is before each."""

    def __init__(self, folder: str) -> None:
        self._message, self._row = Gate(folder, "message"), Gate(folder, "row")

    def message(self, record: Counted) -> bytes:
        self._message.pass_through()
        return b"%d %s %d" % (record.key, record.what.encode(), record.nth)

    def row(self, record: Counted) -> tuple[int, str, int]:
        self._row.pass_through()
        return record


def run(
    spark: SparkSession | None, folder: str, script: str, brokers: str = "", out: str = "", conninfo: str = ""
) -> None:
    """Carry out an encoded ``Script``. Without ``brokers`` the job writes only files."""
    todo = Script.decoded(script)
    if todo.create is not None:
        checkpoint, created = todo.create
        _create_savepoint(spark, f"{folder}/{checkpoint}", f"{folder}/{created}")
    if todo.program is None:
        return
    job = _start(spark, folder, todo.program, todo, (brokers, out, conninfo))
    if todo.take is None:
        job.result()
        return
    _await_micro_batches(job, 2)
    if todo.take == "stopping":
        job.stop_with_savepoint(f"{folder}/{todo.into}")
    else:
        job.savepoint(f"{folder}/{todo.into}")
        job.result()


def _create_savepoint(spark: SparkSession | None, checkpoint: str, path: str) -> None:
    if kind_of_folder(LocalFolder(checkpoint)) is FolderKind.LOCAL:
        create(checkpoint, path, {}, None)
    else:
        from runtime_spark import create_savepoint

        assert spark is not None
        create_savepoint(checkpoint, path, spark=spark)


def _start(
    spark: SparkSession | None, folder: str, program: Program, todo: Script, servers: tuple[str, str, str]
) -> JobHandle:
    env = environment(spark, program.layout, partitions=program.partitions)
    env.set_parallelism(program.parallelism)
    items = env.from_source(Spans(spans(todo.records), limit=LIMIT, run=25)).with_uid("spans")
    if program.mapped:
        items = items.map(same).with_uid("mapped")
    if program.remembered:
        items = items.key_by(key_of).process(Remember()).with_uid("remembered")
    tally, former = _tallies(program)
    env.register_type(tally, formerly=former)
    function = CountRenamed(tally) if program.renamed else Count(tally)
    counted = items.key_by(key_of).process(function).with_uid("count")
    counted.to_sink(FileSink(f"{folder}/counted", schema=Counted)).with_uid("files")
    total = counted.global_().process(CountAll()).with_uid("total")
    total.to_sink(rolling_files(spark, f"{folder}/total", Total)).with_uid("total-files")
    brokers, out, conninfo = servers
    if brokers:
        encode = Encode(folder)
        counted.to_sink(KafkaSink(brokers, out, encode.message)).with_uid("kafka")
        table = PostgresSink(conninfo, out, ["key", "what", "nth"], row=encode.row)
        counted.to_sink(table).with_uid("postgres")
    interval = None if todo.interval is None else Trigger.processing_time(timedelta(seconds=todo.interval))
    return env.execute_async(
        "upgraded",
        checkpoint_location=f"{folder}/{todo.checkpoint}",
        savepoint=None if todo.savepoint is None else f"{folder}/{todo.savepoint}",
        allow_dropped_state=True,  # of "remembered"
        trigger=interval,
    )


def _tallies(program: Program) -> tuple[type[Any], str]:
    """Return the class of the record of a key, and its other name.

    They are imported by name: a program must not use a class under the former name of another one.
    """
    forms = [("storms.jobs.tally_first", "Tally"), ("storms.jobs.tally_second", "Balance")]
    (module, name), other = reversed(forms) if program.evolved else forms
    return getattr(import_module(module), name), ".".join(other)


def _await_micro_batches(job: JobHandle, number: int) -> None:
    """Wait until ``number`` further micro-batches are complete, or the job has ended."""
    last = job.progress.batch_id
    while number and job.status is JobStatus.RUNNING:
        if job.progress.batch_id != last:
            last, number = job.progress.batch_id, number - 1
        time.sleep(_PAUSE_SECONDS)


def expected(records: int, *, servers: bool) -> Output:
    """The expected content of the sinks."""
    items = everything(spans(records))
    counted = Counter((key_of(item), item.span, item.number) for item in items)
    for key, size in Counter(map(key_of, items)).items():
        counted.update((key, what, nth) for what in ("state", "record", "field") for nth in range(1, size + 1))
        counted.update((key, "timer", nth) for nth in range(1, size // TIMER_EVERY + 1))
    total = Counter((number,) for number in range(1, counted.total() + 1))
    sinks = ("files", "kafka", "postgres") if servers else ("files",)
    return {**dict.fromkeys(sinks, counted), "total": total}


class Outputs:
    """The sinks of one life of the job. Without servers it writes only files."""

    def __init__(
        self, folder: Path, name: str, records: int, servers: tuple[KafkaBroker, PostgresServer] | None
    ) -> None:
        """Create the topic and the table. ``records``: The number of records of a split."""
        self.records = records
        self._folder = folder
        self._out = name.replace("-", "_")
        self._servers = servers
        if servers is not None:
            Topics(servers[0].bootstrap_servers).create(2, self._out)
            with psycopg.connect(servers[1].conninfo) as connection:
                connection.execute(f"CREATE TABLE {self._out} (key int, what text, nth int)")

    @property
    def arguments(self) -> list[str]:
        """The arguments of ``run`` after the script."""
        if self._servers is None:
            return []
        broker, database = self._servers
        return [broker.bootstrap_servers, self._out, database.conninfo]

    def expected(self) -> Output:
        """The content that the sinks should have."""
        return expected(self.records, servers=self._servers is not None)

    def written(self) -> Output:
        """The content that readers of the sinks see."""
        found: dict[str, Counter[tuple[Any, ...]]] = {
            "files": read_files(self._folder / "counted"),
            "total": read_files(self._folder / "total"),
        }
        if self._servers is not None:
            broker, database = self._servers
            committed = Topics(broker.bootstrap_servers).committed(self._out)
            messages = (value.decode().split() for part in committed.values() for value in part)
            found["kafka"] = Counter((int(key), what, int(nth)) for key, what, nth in messages)
            with psycopg.connect(database.conninfo) as connection:
                found["postgres"] = Counter(connection.execute(f"SELECT key, what, nth FROM {self._out}").fetchall())
        return found
