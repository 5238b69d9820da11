"""A local job that writes numbers to files, with a checkpoint. ``durable``: "yes" or "no"."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from dsv2 import ExecutionEnvironment
from dsv2.local import LocalRuntime
from dsv2.sinks import FileSink
from dsv2.sources import DataGeneratorSource
from storms.common.outputs import Output, read_files

RECORDS = 200


class Number(NamedTuple):
    number: int


def run(spark: None, folder: str, durable: str) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, durable=durable == "yes"))
    numbers = env.from_source(DataGeneratorSource(Number, count=RECORDS, records_per_batch=10)).with_uid("numbers")
    numbers.to_sink(FileSink(f"{folder}/out", schema=Number)).with_uid("out")
    env.execute("toy", checkpoint_location=f"{folder}/checkpoint")


def expected(durable: str) -> Output:
    return {"out": Counter((number,) for number in range(RECORDS))}


def written(folder: Path, first_batch: int) -> Output:
    return {"out": read_files(folder / "out")}
