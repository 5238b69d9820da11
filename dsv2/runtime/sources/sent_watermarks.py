"""The watermarks that readers of sources had sent when a savepoint was taken. New operators have not received them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from dsv2.graph import Operator, Plan
from dsv2.runtime.operator.time_sender import SentBefore
from dsv2.runtime.sources.offsets import NOTHING_SENT, Report, SourceOffset, has_ended
from dsv2.watermark.event_time import SentEventTime


class StoredPosition(Protocol):
    """The position at which a source continues: ``SourcePosition`` of a savepoint."""

    @property
    def offset(self) -> SourceOffset: ...

    @property
    def reports(self) -> Sequence[Report]: ...


def sent_before(plan: Plan, positions: Mapping[str, StoredPosition]) -> dict[str, list[SentBefore]]:
    """Return what each reader of each source of ``plan`` has sent, by the uid of the source.

    Args:
        plan: The new program. The number of readers of a source may have changed.
        positions: The positions of the sources in the savepoint, by uid.
    """
    return {
        operator.uid: _sent_before(operator, positions[operator.uid])
        for operator in plan.operators
        if operator.uid in positions
    }


def _sent_before(source: Operator, position: StoredPosition) -> list[SentBefore]:
    batch, readers = position.offset.get("batch"), position.offset.get("readers", ())
    if len(readers) == source.parallelism:
        times = {report["subtask"]: report["sender"] for report in position.reports if report["batch"] == batch}
        return [_sent_by(reader, times.get(subtask, reader["sender"])) for subtask, reader in enumerate(readers)]
    active = [reader["sender"] for reader in readers if reader["ended"] is None]
    time = SentEventTime.successor(active) if active else NOTHING_SENT
    return [SentBefore(time, has_ended(position.offset))] * source.parallelism


def _sent_by(reader: Mapping[str, Any], time: Iterable[Any]) -> SentBefore:
    idle, inputs_idle, *rest = time
    return SentBefore((idle, bool(inputs_idle or reader["idle"]), *rest), reader["ended"] is not None)
