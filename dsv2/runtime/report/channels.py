"""The inputs of subtasks in the progress of a job, and when their channels last moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from dsv2.graph import Plan
from dsv2.jobs.progress import ChannelProgress, InputProgress, JobProgress
from dsv2.watermark.event_time import EVENT_TIME

_Key: TypeAlias = tuple[str, int, int]
"""The uid of an operator, a subtask and an input."""

_IDLE, _ENDED = 1, 2


class Channels:
    """The channels that the subtasks of a job have reported last.

    When a channel moved is found by comparing a report with the previous one. So it costs nothing in the subtasks. A
    channel that the previous one did not contain counts as moved, if it has a value.

    Args:
        plan: The plan.
        before: The progress of the job before this run. None (default): there is none.
    """

    def __init__(self, plan: Plan, before: JobProgress | None = None) -> None:
        self._senders = {
            operator.uid: tuple(plan.operators[edge.source].uid for edge in plan.edges_into[operator.id])
            for operator in plan.operators
        }
        self._known: dict[_Key, Mapping[int, ChannelProgress]] = {}
        for operator in () if before is None else before.operators.values():
            for subtask in operator.subtasks:
                for one in subtask.inputs:
                    known = {channel.channel: channel for channel in one.channels}
                    self._known[operator.uid, subtask.subtask, one.input] = known

    def note(self, now_ms: int, report: Mapping[str, Any]) -> tuple[InputProgress, ...]:
        """Compare the report of a subtask with the previous one, and return its inputs.

        Args:
            now_ms: The time of the micro-batch, in ms.
            report: The report. Its ``inputs`` are those of ``InputGate.report``.
        """
        return tuple(self._input(now_ms, report, number) for number in range(len(report["inputs"])))

    def _input(self, now_ms: int, report: Mapping[str, Any], number: int) -> InputProgress:
        uid, one = report["uid"], report["inputs"][number]
        key = (uid, report["subtask"], number)
        before = self._known.get(key, {})
        held = {row[0]: row[1:] for row in one.get("held", ())}
        known = {
            row[0]: _moved(before.get(row[0]), _channel(*row, held=held.get(row[0], ())), now_ms)
            for row in one["channels"]
        }
        self._known[key] = known
        return InputProgress(
            number,
            self._senders[uid][number],
            one["count"],
            one.get("idle", 0),
            one.get("ended", 0),
            one.get("time"),
            one.get("values", {}),
            tuple(known.values()),
            bool(one.get("blocked")),
        )


def _channel(
    number: int,
    status: int = 0,
    time: int | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    held: Sequence[Any],
) -> ChannelProgress:
    blocked_by, records_held, blocked_since_ms = (*held, None)[:3] if held else (None, 0, None)
    return ChannelProgress(
        number,
        time,
        values or {},
        status == _IDLE,
        status == _ENDED,
        blocked_by=blocked_by,
        records_held=records_held,
        blocked_since_ms=blocked_since_ms,
    )


def _moved(before: ChannelProgress | None, now: ChannelProgress, now_ms: int) -> ChannelProgress:
    """``now`` with the times at which it has moved."""
    if before is None:
        before = ChannelProgress(now.channel)
    values, old = _values(now), _values(before)
    moved = {name: now_ms for name, value in values.items() if name not in old or old[name] != value}
    has_moved = bool(moved) or (now.idle, now.ended) != (before.idle, before.ended)
    return replace(
        now,
        moved_at_ms=now_ms if has_moved else before.moved_at_ms,
        values_moved_at_ms={**before.values_moved_at_ms, **moved},
    )


def _values(channel: ChannelProgress) -> dict[str, Any]:
    of_time = {} if channel.event_time is None else {EVENT_TIME: channel.event_time}
    return {**of_time, **channel.watermarks}
