"""The report of a task on a micro-batch. On Spark it travels to the driver with the rows of its frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dsv2.checkpoint.key_samples import KeySample
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.sources.offsets import Report
from dsv2.runtime.sources.source_task import SourceTask


class TaskReport(Struct, frozen=True, omit_defaults=True):
    """The report of a task, or those of all tasks together.

    Attributes:
        subtasks: The reports of the operators and sources that have run.
        readers: The reports of readers of sources with splits.
        letters: The dead letters that nothing reads.
        keys: Samples of keys.
        fields: The uids of operators with the names of the function fields in their last snapshots.
        deadlines: When timers and generators have something to do without records, in ms, in worker processes.
    """

    subtasks: list[SubtaskReport] = []
    readers: list[Report] = []
    letters: list[dict[str, Any]] = []
    keys: list[KeySample] = []
    fields: list[tuple[str, str]] = []
    deadlines: list[int] = []

    @staticmethod
    def of_subtask(subtask: Subtask) -> TaskReport:
        """Return the report of a subtask, and remove its dead letters."""
        fields = [(uid, name) for uid, names in subtask.kept_fields().items() for name in names]
        return TaskReport(subtask.progress(), letters=subtask.take_letters(), fields=fields)

    @staticmethod
    def of_source(task: SourceTask, new_codec: Callable[[], Codec]) -> TaskReport:
        """Return the report of a reader, and remove its dead letters. ``new_codec``: Creates the codec for them."""
        return TaskReport(task.progress(), letters=task.take_letters(new_codec))

    @staticmethod
    def joined(reports: Iterable[TaskReport]) -> TaskReport:
        """Return the reports of several tasks as one."""
        joined = TaskReport()
        for report in reports:
            for name in TaskReport.__struct_fields__:
                getattr(joined, name).extend(getattr(report, name))
        return joined

    @staticmethod
    def decoded(payloads: Iterable[bytes]) -> TaskReport:
        """Return the reports in the payloads of rows as one."""
        return TaskReport.joined(map(_DECODER.decode, payloads))

    @staticmethod
    def distinct(payloads: Iterable[bytes]) -> TaskReport:
        """Return the reports in payloads as one. Repeated tasks report the same, except for the times."""
        found: dict[bytes, TaskReport] = {}
        for report in map(_DECODER.decode, payloads):
            timeless = [replace(one, user_ns=0, span=None) for one in report.subtasks]
            found.setdefault(replace(report, subtasks=timeless).encoded(), report)
        return TaskReport.joined(found.values())

    def fields_by_uid(self, before: Mapping[str, Iterable[str]] | None = None) -> dict[str, list[str]]:
        """Return the names of function fields by uid, and those in ``before``."""
        names = {uid: set(kept) for uid, kept in (before or {}).items()}
        for uid, name in self.fields:
            names.setdefault(uid, set()).add(name)
        return {uid: sorted(names[uid]) for uid in sorted(names)}

    def encoded(self) -> bytes:
        """Return the payload of a row that carries the report."""
        return _ENCODER.encode(self)


def _as_number(value: Any) -> int | float:
    """Convert a number of another type, such as NumPy's, which a gauge or a counter may have."""
    return int(value) if hasattr(value, "__index__") else float(value)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_as_number)
_DECODER = msgspec.msgpack.Decoder(TaskReport)
