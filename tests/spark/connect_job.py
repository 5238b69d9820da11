"""A client of Spark Connect. The arguments are the address of the server and a folder; prints what it found as JSON.

A process that has a classic session cannot have one of Spark Connect.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from dsv2 import (
    Collector,
    CollectSink,
    Dsv2Error,
    ExecutionEnvironment,
    OneInputStreamProcessFunction,
    PartitionedContext,
    RuntimeExecutionMode,
)
from dsv2.connectors.files import FilesSource, json_lines, read_files
from dsv2.runtime.report import base_job
from dsv2.savepoint import Savepoint
from dsv2.sinks import FileSink
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import Stop, TestSource
from runtime_spark import through_dataframe, to_dataframe
from tests.durations import LONG

NUMBERS = list(range(1_000))


class Number(NamedTuple):
    """A number, and whether it is even."""

    n: int
    even: bool


class Doubled(OneInputStreamProcessFunction[Number, Number]):
    """Doubles numbers. One cannot be doubled."""

    def process_record(self, record: Number, output: Collector[Number], ctx: PartitionedContext[Number]) -> None:
        if record.n == 13:
            raise ValueError("13 cannot be doubled")
        output.collect(Number(2 * record.n, record.even))


LAST = StateDeclarations.value_state("last", Number)


class Kept(OneInputStreamProcessFunction[Number, Number]):
    """Keeps numbers."""

    def uses_states(self) -> list[StateDeclaration]:
        return [LAST]

    def process_record(self, record: Number, output: Collector[Number], ctx: PartitionedContext[Number]) -> None:
        ctx.state_manager.get_state(LAST).update(record)


def number_of(number: Number) -> int:
    return number.n


class Slow(OneInputStreamProcessFunction[Number, Number]):
    """Never ends."""

    def process_record(self, record: Number, output: Collector[Number], ctx: PartitionedContext[Number]) -> None:
        time.sleep(600)


class Client:
    """The jobs of a client. ``spark``: Its session."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def env(self) -> ExecutionEnvironment:
        env = ExecutionEnvironment.get_instance(spark=self.spark)
        env.set_parallelism(2)
        env.set_execution_mode(RuntimeExecutionMode.BATCH)
        return env

    def numbers(self) -> DataFrame:
        return self.spark.range(20, 120).selectExpr("int(id) AS n", "id % 2 = 0 AS even")

    def dataframes(self) -> list[int]:
        """From a DataFrame to a DataFrame."""
        env = self.env()
        doubled = env.from_dataframe(self.numbers(), Number).process(Doubled())
        rows = to_dataframe(env, doubled, Number).where("even").collect()
        return sorted(row.n for row in rows)

    def files(self) -> list[int]:
        """From files to files. Small files are merged. Returns what two readers find."""
        (self.folder / "in").mkdir()
        for part in range(3):
            lines = [json.dumps({"n": n, "even": n % 2 == 0}) for n in NUMBERS if n % 3 == part and n != 13]
            (self.folder / "in" / f"{part}.json").write_text("\n".join(lines))
        env = self.env()
        source = FilesSource(self.folder / "in", json_lines(lambda row: Number(row["n"], row["even"])))
        out = self.folder / "out"
        env.from_source(source).process(Doubled()).to_sink(FileSink(out, schema=Number, partition_by=["even"]))
        env.execute("files")
        found = read_files(out).to_arrow()["n"].to_pylist()
        assert sorted(found) == sorted(row.n for row in self.spark.read.parquet(str(out)).collect())
        return sorted(found)

    def savepoint(self) -> list[int]:
        """Read the state in a savepoint, which a local job has written, with the server."""
        env = ExecutionEnvironment.get_instance(runtime="local")
        source = TestSource[Number]([Number(n, n % 2 == 0) for n in range(10)] + [Stop()])
        env.from_source(source).with_uid("in").key_by(number_of).process(Kept()).with_uid("kept").to_sink(CollectSink())
        job = env.execute_async("kept")
        job.await_termination()
        path = job.savepoint(self.folder / "savepoint")
        return sorted(row.value.n for row in Savepoint.open(path).state("kept", "last").to_spark(self.spark).collect())

    def used_output(self) -> str:
        """Write to a folder that has output already."""
        env = self.env()
        env.from_dataframe(self.numbers(), Number).to_sink(FileSink(self.folder / "out", schema=Number))
        return failure_of(env)

    def failure(self) -> str:
        """Fail in a function."""
        env = self.env()
        numbers = env.from_collection([Number(13, False)])
        numbers.process(Doubled()).with_name("doubled").to_sink(CollectSink())
        return failure_of(env)

    def through(self) -> str:
        """Pass records through a DataFrame."""
        env = self.env()
        numbers = env.from_collection([Number(1, False)])
        through_dataframe(env, numbers, lambda rows: rows, Number, Number).to_sink(CollectSink())
        return failure_of(env)

    def elsewhere(self) -> str:
        """Write files to a file system that the client does not see."""
        env = self.env()
        env.from_collection([Number(1, False)]).to_sink(FileSink("hdfs://127.0.0.1:1/out", schema=Number))
        return failure_of(env)

    def cancelled(self) -> str:
        """Cancel a job."""
        env = self.env()
        env.from_collection([Number(1, False)]).process(Slow()).to_sink(CollectSink())
        job = env.execute_async("cancelled")
        with patch.object(base_job, "_CANCEL_SECONDS", LONG):
            job.stop(timedelta(seconds=3))
        return job.status.value


def failure_of(env: ExecutionEnvironment, **options: Any) -> str:
    """Return the error of a job that fails."""
    try:
        env.execute("a job", **options)
    except Dsv2Error as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


JOBS = (
    Client.through,
    Client.elsewhere,
    Client.dataframes,
    Client.files,
    Client.savepoint,
    Client.used_output,
    Client.failure,
    Client.cancelled,
)


def main(url: str, folder: str) -> None:
    """Run the jobs."""
    spark = SparkSession.builder.remote(url).getOrCreate()
    client = Client(spark, Path(folder))
    found = {}
    for job in JOBS:
        began = time.monotonic()
        found[job.__name__] = job(client)
        print(f"{job.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
