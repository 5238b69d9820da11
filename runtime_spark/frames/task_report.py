"""The report of a task to the driver on a micro-batch, which travels with the rows of its frames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dsv2.checkpoint.key_samples import KeySample
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.runtime.sources.offsets import Report


class TaskReport(Struct, frozen=True, omit_defaults=True):
    """The report of a task, or those of all tasks together.

    Attributes:
        subtasks: The reports of the operators and sources that have run.
        readers: The reports of readers of sources with splits.
        letters: The dead letters that nothing reads.
        keys: Samples of keys.
        fields: The uids of operators with the names of their function fields.
    """

    subtasks: list[SubtaskReport] = []
    readers: list[Report] = []
    letters: list[dict[str, Any]] = []
    keys: list[KeySample] = []
    fields: list[tuple[str, str]] = []

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

    def encoded(self) -> bytes:
        """Return the payload of a row that carries the report."""
        return _ENCODER.encode(self)


def _as_number(value: Any) -> int | float:
    """Convert a number of another type, such as NumPy's, which a gauge or a counter may have."""
    return int(value) if hasattr(value, "__index__") else float(value)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_as_number)
_DECODER = msgspec.msgpack.Decoder(TaskReport)
