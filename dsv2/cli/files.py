"""``dsv2 files``: shows, merges and cleans the output of file sinks."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

from dsv2.base.clock import SystemClock
from dsv2.base.folders import Folder
from dsv2.cli.command import (
    Report,
    add_command,
    add_group,
    add_report_options,
    folder_at,
    settings_of,
    spark_commands,
    table,
)
from dsv2.errors import ConfigurationError
from dsv2.file_log import SinkFolder, read_log
from dsv2.file_log.cleanup import clean
from dsv2.file_log.description import Description

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def add_commands(groups: Any) -> None:
    """Add the commands to those of ``dsv2``."""
    commands = add_group(groups, "files", "show, merge and clean the output of file sinks")
    added = {}
    for name, run, text, options in (
        ("show", _show, "show the files of a file sink", ""),
        ("compact", _compact, "merge small files of a file sink whose job is not running; needs Spark", ""),
        (
            "truncate",
            _truncate,
            "remove the last micro-batches, so that an older checkpoint can write them again",
            " --after 41",
        ),
        ("clean", _clean, "delete what failed attempts have left and files that were merged", " --older-than 12h"),
    ):
        command = added[name] = add_command(commands, name, text, f"files {name} /data/events{options}")
        command.add_argument("path", help="the folder of the sink")
        add_report_options(command, run)
    added["compact"].add_argument(
        "--target-size", type=_size, default="128m", help="the approximate size of merged files (default: 128m)"
    )
    added["compact"].add_argument(
        "--job-has-ended", action="store_true", help="merge although the last run of the job has not ended normally"
    )
    added["truncate"].add_argument(
        "--after", type=int, required=True, metavar="BATCH", help="the last micro-batch that remains; -1 for none"
    )
    added["clean"].add_argument(
        "--older-than", type=_duration, default="1d", help="the least age of what is deleted, such as 12h (default: 1d)"
    )
    added["clean"].add_argument("--dry-run", action="store_true", help="only print what would be deleted")


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kmg]?)b?", text.lower(), re.ASCII)
    if found is None or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size in bytes, such as 128m")
    return int(found[1]) * _SIZES[found[2]]


def _duration(text: str) -> timedelta:
    found = re.fullmatch(r"(\d+)([smhd])", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration, such as 30m, 12h or 7d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _open(arguments: argparse.Namespace) -> tuple[Folder, Description]:
    folder = folder_at(arguments.path, arguments, "Use Spark.")
    description = Description.read(folder)
    if description is None:
        raise ConfigurationError(f"{arguments.path} is not the folder of a FileSink.")
    return folder, description


def _show(arguments: argparse.Namespace) -> Report:
    folder, description = _open(arguments)
    state = read_log(folder)
    files = [
        {"file": file.path, "bytes": file.size, "first": file.first, "last": file.last} for file in state.files.values()
    ]
    size = sum(file.size for file in state.files.values())
    replaced = sum(folder.sizes(path.rpartition("/")[0]).get(path.rpartition("/")[2], 0) for path in state.replaced)
    data = {
        "format": description.format,
        "partition_by": list(description.partition_by),
        "last_batch": state.last_batch,
        "ended_normally": state.is_closed,
        "bytes": size,
        "replaced_bytes": replaced,
        "files": files,
    }
    text = [
        f"{len(files)} {description.format} files, {size} bytes, up to micro-batch {state.last_batch}",
        f"{len(state.replaced)} files that were merged, {replaced} bytes",
        f"The last run {'has ended normally' if state.is_closed else 'is running or has failed'}.",
        "",
        *table(files),
    ]
    return Report(text, data)


def _compact(arguments: argparse.Namespace) -> Report:
    folder, _ = _open(arguments)
    before = read_log(folder)
    if not before.is_closed and not arguments.job_has_ended:
        raise ConfigurationError(
            f"The job that writes to {arguments.path} is running, or has failed. Stop it with handle.stop(). If it is "
            f"not running, add --job-has-ended."
        )
    replaced = spark_commands().compact(arguments.path, arguments.target_size, settings_of(arguments))
    after = read_log(folder)
    text = f"{replaced} files were merged: {len(after.files)} files instead of {len(before.files)}."
    return Report([text], {"replaced": replaced, "files": len(after.files)})


def _truncate(arguments: argparse.Namespace) -> Report:
    folder, _ = _open(arguments)
    sink = SinkFolder(folder, SystemClock(), str(uuid4()))
    sink.begin(arguments.after + 1)
    deleted = sink.truncate(arguments.after)
    sink.close()
    text = f"{deleted} files were deleted. The output ends with micro-batch {sink.state.last_batch}."
    return Report([text], {"deleted": deleted, "last_batch": sink.state.last_batch})


def _clean(arguments: argparse.Namespace) -> Report:
    folder, _ = _open(arguments)
    before_ms = SystemClock().now_ms() - arguments.older_than // timedelta(milliseconds=1)
    deleted = clean(folder, before_ms, dry_run=arguments.dry_run)
    what = "would be deleted" if arguments.dry_run else "were deleted"
    rows = [{"file": path, "bytes": size} for path, size in deleted.items()]
    return Report([f"{len(rows)} files {what}, {sum(deleted.values())} bytes.", "", *table(rows)], {"files": rows})
