"""A job of five micro-batches whose functions use resources. The argument is a folder for its notes."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from dsv2 import Resource
from dsv2.functions import AsyncOneInputStreamProcessFunction, OneInputStreamProcessFunction
from dsv2.model import AsyncResource
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource
from tests.spark.kill_job import new_session
from tests.spark.programs import environment


def note(folder: Path, event: str) -> int:
    """Write ``event`` to the notes, with the number of the process."""
    with (folder / "notes").open("a", encoding="utf-8") as notes:
        notes.write(f"{event} {os.getpid()}\n")
    return os.getpid()


class Score(OneInputStreamProcessFunction[int, int]):
    """Emits each number, plus what the resource adds: nothing."""

    def __init__(self, folder: Path) -> None:
        self.model = Resource(partial(note, folder, "open"), close=lambda process: note(folder, "close"))

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        assert self.model.get() == os.getpid()
        output.collect(record)


async def begin_session(folder: Path) -> int:
    """Open the session of ``Ask``."""
    return note(folder, "open async")


async def end_session(folder: Path, process: int) -> None:
    """Close it."""
    note(folder, "close async")


class Ask(AsyncOneInputStreamProcessFunction[int, int]):
    """Emits each number. Its session belongs to the event loop of the process."""

    def __init__(self, folder: Path) -> None:
        self.session = AsyncResource(partial(begin_session, folder), close=partial(end_session, folder))

    async def process_record(self, record: int, output: Any, ctx: Any) -> None:
        assert await self.session.get() == os.getpid()
        await asyncio.sleep(0.001)
        output.collect(record)


def main(folder: Path) -> None:
    """Run the job, and stop the session."""
    spark = new_session(str(folder))
    env = environment(spark, 2)
    sink = CollectSink[int]()
    source = env.from_source(CollectionSource(range(20), records_per_batch=4))
    scored = source.key_by(lambda number: number).process(Score(folder)).with_uid("score")
    scored.process(Ask(folder)).with_uid("ask").to_sink(sink)
    result = env.execute("score", checkpoint_location=folder / "checkpoint")
    assert sorted(sink.results) == list(range(20))
    note(folder, f"batches {result.progress.batch_id + 1}")
    spark.stop()


if __name__ == "__main__":
    from tests.spark import resource_job  # importable by the workers

    resource_job.main(Path(sys.argv[1]))
