"""Notes in a checkpoint for later starts, in addition to the manifest of the first start.

They hold the descriptions of later programs, samples of keys, the names of stored function fields, which sources have
ended, the sinks, and a planned micro-batch that the sinks have not received. The JSON file is replaced when there is
something new, mostly in the first micro-batches. Without notes, a restart is compared only with the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from dsv2.base.folders import Folder
from dsv2.checkpoint.description import Description
from dsv2.checkpoint.key_samples import KeySample, add_samples
from dsv2.checks.json_documents import decoded, write_document
from dsv2.errors import IncompatibleCheckpointError
from runtime_spark.checkpoint.spark_logs import Beginning

_FOLDER = "dsv2/notes"


@dataclass(frozen=True)
class Notes:
    """The notes.

    Attributes:
        programs: The descriptions of later programs.
        keys: Samples of keys.
        fields: For each uid, the names of the function fields that any subtask has stored.
        ended: For each source of which a subtask has ended, whether each of its subtasks has.
        sinks: The sinks of the last program (``sinks_of``).
        unwritten: The micro-batch that Spark had planned when the job ended, but that its sinks had not received.
    """

    programs: list[Description] = field(default_factory=list)
    keys: list[KeySample] = field(default_factory=list)
    fields: dict[str, list[str]] = field(default_factory=dict)
    ended: dict[str, list[bool]] = field(default_factory=dict)
    sinks: dict[str, Description] = field(default_factory=dict)
    unwritten: int | None = None

    def file_folders(self) -> list[tuple[str, str]]:
        """Return the uids of the sinks, and the folders of those that write files."""
        return [(uid, sink.get("folder", "")) for uid, sink in self.sinks.items()]

    def with_reports(self, reports: Iterable[dict[str, Any]]) -> Notes:
        """Return these notes with the reports of the subtasks on a micro-batch."""
        reports = list(reports)
        names = {uid: set(kept) for uid, kept in self.fields.items()}
        for report in reports:
            if "fields_of" in report:
                names.setdefault(report["fields_of"], set()).update(report["names"])
        samples = (cast("KeySample", report) for report in reports if "key_of" in report)
        keys = add_samples(self.keys, samples)
        return replace(self, keys=keys, fields={uid: sorted(names[uid]) for uid in sorted(names)})

    def with_ended(self, ended: Iterable[tuple[str, int]], sources: Mapping[str, int]) -> Notes:
        """Return these notes with subtasks of sources that have ended; ``sources`` are their numbers of subtasks."""
        flags = {uid: self.ended_subtasks(uid, sources[uid]) for uid in self.ended if uid in sources}
        for uid, subtask in ended:
            flags.setdefault(uid, [False] * sources[uid])[subtask] = True
        return replace(self, ended=flags)

    def is_begun(self, beginning: Beginning) -> bool:
        """Return whether sinks may have written a part of the micro-batch that a run would begin with."""
        return beginning.repeats and self.unwritten != beginning.batch_id

    def ended_subtasks(self, source: str, parallelism: int) -> list[bool]:
        """Return which subtasks of a source have ended. After a change of parallelism, either all or none have."""
        flags = self.ended.get(source, [False])
        return list(flags) if len(flags) == parallelism else [all(flags)] * parallelism


class NoteBook:
    """The notes of one checkpoint: the last of the files ``dsv2/notes/<n>.json``."""

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._number = -1
        self.notes = Notes()

    def read(self) -> None:
        """Read the notes, if there are any.

        Raises:
            IncompatibleCheckpointError: The file is damaged.
        """
        numbers = self._checkpoint.numbers(_FOLDER, suffix=".json")
        if not numbers:
            return
        self._number = numbers[-1]
        name = _name(self._number)
        try:
            self.notes = decoded(self._checkpoint.read(name), Notes)
        except ValueError as error:
            raise IncompatibleCheckpointError(
                f"The notes in {self._checkpoint.place(name)} are damaged: {error}. The job can start without that "
                f"file, but key selectors are then compared less closely."
            ) from error

    def write(self, notes: Notes) -> None:
        """Write ``notes`` if they have changed."""
        if notes == self.notes:
            return
        self._number += 1
        write_document(self._checkpoint, _name(self._number), notes)
        self._checkpoint.delete(_name(self._number - 1))
        self.notes = notes


def _name(number: int) -> str:
    return f"{_FOLDER}/{number}.json"
