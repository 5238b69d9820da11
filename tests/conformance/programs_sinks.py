"""Programs for sinks other than ``CollectSink``, to which all programs write, and those of Arrow tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from dsv2.connectors.files import read_files
from dsv2.sinks import FileSink, ForeachBatchSink, ParallelSink, SinkBatch
from tests.conformance.functions import NUMBERS, mod3
from tests.conformance.harness import Pipeline, Program, Run


class Written(NamedTuple):
    """A row of a file."""

    number: int
    part: int


ROWS = [Written(number, mod3(number)) for number in NUMBERS]


def row_of(number: int) -> Written:
    return Written(number, mod3(number))


@dataclass(frozen=True)
class FilesOf:
    """Writes a file for each micro-batch, which a repeated one replaces."""

    folder: Path

    def __call__(self, records: list[Written], batch_id: int) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{batch_id}").write_text(json.dumps(records))


class Folder(ParallelSink[Written]):
    """Does the same for each subtask."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, batch: SinkBatch[Written]) -> None:
        records = [record for part in batch.batches for record in part.records]
        FilesOf(self.folder / f"{batch.subtask}")(records, batch.batch_id)


class SinksOfEveryKind(Program):
    """Each sink receives each record once, and files are in the folder of their part."""

    def build(self, p: Pipeline) -> None:
        rows = p.source(NUMBERS).map(row_of)
        interval = timedelta(hours=1)
        rows.to_sink(
            FileSink(p.folder / "rows", schema=Written, format="json", partition_by=["part"], roll_interval=interval)
        )
        rows.to_sink(ForeachBatchSink(FilesOf(p.folder / "driver")))
        (p.folder / "tasks").mkdir()
        rows.to_sink(Folder(p.folder / "tasks"))

    def check(self, run: Run) -> None:
        path = run.folder / "rows"
        assert sorted(Written(**row) for row in read_files(path).to_arrow().to_pylist()) == ROWS
        assert {file.parent.name for file in path.glob("part=*/*.json")} == {"part=0", "part=1", "part=2"}
        assert all("part" not in json.loads(line) for file in path.glob("part=*/*.json") for line in file.open())
        for pattern in ("driver/*", "tasks/*/*"):
            found = [Written(*row) for file in run.folder.glob(pattern) for row in json.loads(file.read_text())]
            assert sorted(found) == ROWS


PROGRAMS: tuple[Program, ...] = (SinksOfEveryKind(),)
