"""``dsv2 watermarks``: shows what holds a watermark of a job back, from the progress in its checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from dsv2.base.clock import SystemClock
from dsv2.base.quantities import duration_text, time_text
from dsv2.cli.command import Report, add_command, add_report_options, folder_at, table
from dsv2.errors import ConfigurationError
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.progress_log import read_job, read_progress
from dsv2.jobs.watermark_report import (
    ChannelWatermark,
    InputWatermark,
    OperatorWatermark,
    WatermarkReport,
    report_watermarks,
)
from dsv2.plan_view.model import PlanView


def add_commands(groups: Any) -> None:
    """Add the command to those of ``dsv2``."""
    command = add_command(
        groups,
        "watermarks",
        "show what holds a watermark of a job back",
        "watermarks /data/orders",
        "watermarks /data/orders closed-day --operator totals",
        description="Show what holds a watermark of a job back, as of the last micro-batch in its checkpoint.",
    )
    command.add_argument("path", help="the checkpoint_location of the job")
    command.add_argument(
        "identifier", nargs="?", default="event-time", help="the identifier of the watermark (default: event-time)"
    )
    command.add_argument("--operator", metavar="UID", help="only this function, with its inputs and channels")
    add_report_options(command, _show)


def _show(arguments: argparse.Namespace) -> Report:
    folder = folder_at(arguments.path, arguments, "Use Spark.")
    job, progress = read_job(folder), read_progress(folder)
    if job is None or not progress:
        raise ConfigurationError(f"{arguments.path} has no progress of a job. Jobs write it after each micro-batch.")
    view = msgspec.convert(job.plan, PlanView, strict=False)
    report = report_watermarks(
        view, progress[-1], SystemClock().now_ms(), arguments.identifier, operator=arguments.operator
    )
    details = () if arguments.operator is None else tuple(_details(report))
    head = f"Job {job.name!r} after micro-batch {report.batch_id}{_age(progress[-1], report)}"
    return Report([head, "", str(report), *details], msgspec.to_builtins(report))


def _age(progress: JobProgress, report: WatermarkReport) -> str:
    if not progress.batches:
        return ""
    last = progress.batches[-1]
    return f", {_since(last.started_at_ms + int(last.duration_ms), report)} ago"


def _details(report: WatermarkReport) -> Iterator[str]:
    """The inputs and channels of an operator, and the way to the cause."""
    for operator in report.operators:
        yield ""
        shows_held = any(row.records_held or row.blocked_since_ms for one in operator.inputs for row in one.channels)
        yield from table([row for one in operator.inputs for row in _rows(one, report, shows_held=shows_held)])
        if len(operator.path) > 1:
            yield ""
            yield f"The way to the cause: {_way(operator)}"


def _rows(one: InputWatermark, report: WatermarkReport, *, shows_held: bool) -> Sequence[dict[str, object]]:
    return [
        {
            "input": one.input + 1,
            "sender": one.sender,
            "channel": channel.channel,
            "value": _value(channel.value, report),
            "not moved for": None if channel.moved_at_ms is None else _since(channel.moved_at_ms, report),
            "status": "ended" if channel.ended else "idle" if channel.idle else "active",
            "holds it back": "yes" if channel.holds_back else "",
            **(_held(channel, report) if shows_held else {}),
        }
        for channel in one.channels
    ]


def _held(channel: ChannelWatermark, report: WatermarkReport) -> dict[str, object]:
    since = channel.blocked_since_ms
    return {"blocked for": None if since is None else _since(since, report), "records held": channel.records_held}


def _value(value: object, report: WatermarkReport) -> object:
    return time_text(value) if report.identifier == "event-time" and isinstance(value, int) else value


def _since(time_ms: int, report: WatermarkReport) -> str:
    return duration_text(max(0, report.now_ms - time_ms))


def _way(operator: OperatorWatermark) -> str:
    steps = [step.operator if step.subtask is None else f"{step.operator}[{step.subtask}]" for step in operator.path]
    return " <- ".join([*steps, *([] if operator.split is None else [f"split {operator.split}"])])
