"""What the readers of sources have found out, on its way from the tasks back to the planners.

It comes with the rows of a micro-batch. From there it goes to the planners, which live in other processes on the
driver's host, through one file for each source; and into the checkpoint, before Spark commits the micro-batch, so that
the planners of the next run get it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dsv2.graph import OperatorKind, Plan
from dsv2.runtime.alignment import AlignmentBoard
from dsv2.runtime.source_offset import Report
from runtime_spark.manifest import path_exists

__all__ = ("FileBoard", "ReportArchive", "ReportFile")


def _replace(path: Path, text: str) -> None:
    """Have ``path`` hold ``text``, all of it or what it held before."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


class ReportFile:
    """The reports of one source from its last micro-batch, between two processes of one host."""

    def __init__(self, folder: str, operator_id: int) -> None:
        self._path = Path(folder, f"{operator_id}.json")

    def write(self, reports: list[Report]) -> None:
        """Replace what is there."""
        _replace(self._path, json.dumps(reports))

    def read(self) -> list[Report]:
        """What was written last; nothing if nothing was."""
        try:
            reports: list[Report] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        return reports


class FileBoard(AlignmentBoard):
    """For sources whose planners live in processes of their own, on one host: a file in ``folder`` for each."""

    def __init__(self, plan: Plan, folder: str) -> None:
        super().__init__(plan)
        self._folder = folder
        self._told: dict[int, int | None] = {}

    def tell(self, operator_id: int, time: int | None) -> None:
        if operator_id not in self._told or self._told[operator_id] != time:
            self._told[operator_id] = time
            _replace(self._path(operator_id), json.dumps(time))

    def _read(self, operator_id: int) -> tuple[bool, int | None]:
        try:
            return True, json.loads(self._path(operator_id).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False, None

    def _path(self, operator_id: int) -> Path:
        return Path(self._folder, f"{operator_id}.time")


class ReportArchive:
    """Takes the reports of each micro-batch. ``folder``: where the planners look for them.

    In the checkpoint stand those of the last two micro-batches: of the last one, which Spark may not have committed,
    and of the one before. It goes through Hadoop's file system, as Spark's own log does.
    """

    def __init__(self, spark: SparkSession, plan: Plan, checkpoint: str, folder: str) -> None:
        self._spark = spark
        self._place = f"{checkpoint}/dsv2/reports"
        sources = [operator for operator in plan.operators if operator.kind is OperatorKind.SOURCE]
        self._files = {op.uid: ReportFile(folder, op.id) for op in sources if plan.readers_report(op)}
        self._latest: dict[str, list[Report]] = {}
        self._archived: list[int] = []  # the micro-batches of which there are files

    def restore(self) -> None:
        """Hand what the run before has left to the planners. Call it before the query starts."""
        if not self._files or not path_exists(self._spark, f"{self._place}/*.json"):
            return
        rows = self._spark.read.text(f"{self._place}/*.json", wholetext=True).collect()
        archives: list[dict[str, Any]] = sorted(
            (json.loads(row[0]) for row in rows), key=lambda entry: entry["batch_id"]
        )
        self._archived = [archive["batch_id"] for archive in archives]
        for uid, reports in archives[-1]["reports"].items():
            if uid in self._files:
                self._latest[uid] = reports
                self._files[uid].write(reports)

    def add(self, batch_id: int, reports: list[Report]) -> None:
        """Keep ``reports`` of the readers that had anything to do in Spark's micro-batch ``batch_id``."""
        if not reports:
            return
        by_source: dict[str, list[Report]] = {}
        for report in reports:
            by_source.setdefault(report["source"], []).append(report)
        self._latest |= by_source
        self._archive(batch_id)
        for uid, of_source in by_source.items():
            self._files[uid].write(of_source)

    def _archive(self, batch_id: int) -> None:
        context: Any = self._spark.sparkContext
        new_path = context._jvm.org.apache.hadoop.fs.Path
        new, final = new_path(f"{self._place}/_{batch_id}.json"), new_path(f"{self._place}/{batch_id}.json")
        files = final.getFileSystem(context._jsc.hadoopConfiguration())
        stream = files.create(new, True)
        stream.write(json.dumps({"batch_id": batch_id, "reports": self._latest}).encode())
        stream.close()
        files.delete(final, False)  # of an attempt before; if this is the end, Spark repeats the micro-batch
        if not files.rename(new, final):
            raise OSError(f"{new} cannot be renamed to {final}.")
        self._archived = [*(number for number in self._archived if number != batch_id), batch_id]
        while len(self._archived) > 2:
            files.delete(new_path(f"{self._place}/{self._archived.pop(0)}.json"), False)
