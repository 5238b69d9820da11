"""The inputs of subtasks in the progress of a job, and when their channels last moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec.structs import asdict

from dsv2.graph import Plan
from dsv2.jobs.progress import ChannelProgress, InputProgress, JobProgress, WatermarkProgress
from dsv2.runtime.report.subtask_report import ChannelReport, InputReport, SubtaskReport
from dsv2.watermark.event_time import EVENT_TIME

_Key: TypeAlias = tuple[str, int, int]
"""The uid of an operator, a subtask and an input."""


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

    def note(self, now_ms: int, report: SubtaskReport) -> tuple[InputProgress, ...]:
        """Compare the report of a subtask with the previous one, and return its inputs.

        ``now_ms``: The time of the micro-batch, in ms.
        """
        return tuple(self._input(now_ms, report, *numbered) for numbered in enumerate(report.inputs))

    def _input(self, now_ms: int, report: SubtaskReport, number: int, one: InputReport) -> InputProgress:
        key = (report.uid, report.subtask, number)
        before = self._known.get(key, {})
        known = {row.channel: _moved(before.get(row.channel), row, now_ms) for row in one.channels}
        self._known[key] = known
        return InputProgress(
            number,
            self._senders[report.uid][number],
            one.channel_count,
            one.idle_count,
            one.ended_count,
            one.event_time,
            one.watermarks,
            tuple(known.values()),
            one.blocked,
        )


def _moved(before: ChannelProgress | None, now: ChannelReport, now_ms: int) -> ChannelProgress:
    """The channel as reported ``now``, with the times at which it has moved."""
    if before is None:
        before = ChannelProgress(now.channel)
    values, old = _values(now), _values(before)
    moved = {name: now_ms for name, value in values.items() if name not in old or old[name] != value}
    has_moved = bool(moved) or (now.idle, now.ended) != (before.idle, before.ended)
    return ChannelProgress(
        **asdict(now),
        moved_at_ms=now_ms if has_moved else before.moved_at_ms,
        values_moved_at_ms={**before.values_moved_at_ms, **moved},
    )


def _values(channel: ChannelProgress | ChannelReport) -> dict[str, WatermarkProgress]:
    of_time = {} if channel.event_time is None else {EVENT_TIME: channel.event_time}
    return {**of_time, **channel.watermarks}
