"""What a job leaves in its checkpoint for later starts, besides the manifest of its first start.

The programs that went on with it since then, as manifests; samples of keys; and the names of the function fields that
were kept. A file of JSON, written again when there is more to say: in the first micro-batches mostly. It goes through
Hadoop's file system, as Spark's own log does. Without it a start is compared with the manifest only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from dsv2.errors import IncompatibleCheckpointError
from runtime_spark.key_samples import KeySample, add_samples

__all__ = ("NoteBook", "Notes")


@dataclass(frozen=True)
class Notes:
    """``fields``: per uid the names of the fields that any subtask has kept."""

    programs: list[dict[str, Any]] = field(default_factory=list)
    keys: list[KeySample] = field(default_factory=list)
    fields: dict[str, list[str]] = field(default_factory=dict)

    def with_reports(self, reports: Iterable[dict[str, Any]]) -> Notes:
        """These notes and what subtasks have reported in a micro-batch."""
        reports = list(reports)
        names = {uid: set(kept) for uid, kept in self.fields.items()}
        for report in reports:
            if report.get("fields"):
                names.setdefault(report["uid"], set()).update(report["fields"])
        keys = add_samples(self.keys, (report for report in reports if "key_of" in report))
        return replace(self, keys=keys, fields={uid: sorted(names[uid]) for uid in sorted(names)})


class NoteBook:
    """The notes of one checkpoint: ``dsv2/notes/<n>.json``, of which the last one counts."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._context: Any = spark.sparkContext
        self._folder = f"{checkpoint}/dsv2/notes"
        self._number = -1
        self.notes = Notes()

    def read(self) -> None:
        """Take over what is there. Raises ``IncompatibleCheckpointError`` for what is not whole."""
        folder = self._path(self._folder)
        files = folder.getFileSystem(self._context._jsc.hadoopConfiguration())
        if not files.exists(folder):
            return
        names = [status.getPath().getName() for status in files.listStatus(folder)]
        numbers = [int(name.removesuffix(".json")) for name in names if name[0].isdigit()]
        if not numbers:
            return
        self._number = max(numbers)
        name = f"{self._folder}/{self._number}.json"
        try:
            stream = files.open(self._path(name))
            text = bytes(stream.readAllBytes()).decode()
            stream.close()
            self.notes = Notes(**json.loads(text))
        except Exception as error:
            raise IncompatibleCheckpointError(
                f"The notes in {name} are damaged: {error}. The job can be started without that file; key selectors "
                f"are compared less closely then."
            ) from error

    def write(self, notes: Notes) -> None:
        """Have ``notes`` there, unless they are."""
        if notes == self.notes:
            return
        self._number += 1
        final = self._path(f"{self._folder}/{self._number}.json")
        new = self._path(f"{self._folder}/_{self._number}.json")
        files = final.getFileSystem(self._context._jsc.hadoopConfiguration())
        stream = files.create(new, True)
        stream.write(json.dumps(asdict(notes)).encode())
        stream.close()
        files.delete(final, False)  # of a start whose checkpoint was emptied since
        if not files.rename(new, final):
            raise OSError(f"{new} cannot be renamed to {final}.")
        files.delete(self._path(f"{self._folder}/{self._number - 1}.json"), False)
        self.notes = notes

    def _path(self, name: str) -> Any:
        return self._context._jvm.org.apache.hadoop.fs.Path(name)
