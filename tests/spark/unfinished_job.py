"""A program that ends while its jobs run: a bounded and an unbounded one. The argument is a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from dsv2 import ExecutionEnvironment, Trigger
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from tests.durations import ms
from tests.spark.kill_job import new_session


def main(folder: Path) -> None:
    env = ExecutionEnvironment.get_instance(spark=new_session(str(folder)))

    def write(records: list[int], batch_id: int) -> None:
        (folder / "found").write_text(f"{records}")

    env.from_collection([1, 2, 3]).to_sink(ForeachBatchSink(write))
    env.execute_async("with an end", checkpoint_location=folder / "one")
    env.from_source(DataGeneratorSource(abs, records_per_second=1)).to_sink(ForeachBatchSink(print))
    env.execute_async("without an end", checkpoint_location=folder / "two", trigger=Trigger.processing_time(ms(1000)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
