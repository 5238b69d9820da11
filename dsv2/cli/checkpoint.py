"""``dsv2 checkpoint``: shows, verifies and copies the checkpoints of jobs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dsv2.checkpoint.folder_kinds import FolderKind, kind_of_folder
from dsv2.checks.paths import local_folder
from dsv2.cli.command import (
    Report,
    add_command,
    add_group,
    add_report_options,
    add_state_key,
    checkpoint_commands,
    operator_row,
    settings_of,
    table,
)
from dsv2.errors import ConfigurationError

_ONLY_LOCAL = "This command copies the checkpoints of the local runtime, on a local disk."


def add_commands(groups: Any) -> None:
    """Add the commands to those of ``dsv2``."""
    commands = add_group(groups, "checkpoint", "show, verify and back up checkpoints of jobs")
    for name, run, text in (
        ("show", _show, "show the program of a checkpoint and the positions of its sources"),
        ("verify", _verify, "read and decode all state of a checkpoint"),
    ):
        command = add_command(commands, name, text, f"checkpoint {name} /data/orders")
        command.add_argument("path", help="the checkpoint_location")
        if name == "verify":
            add_state_key(command)
        add_report_options(command, run)
    text = "copy the checkpoint of a local job, which may be running"
    command = add_command(commands, "backup", text, "checkpoint backup /data/orders /backup/orders-1")
    command.add_argument("path", help="the checkpoint_location")
    command.add_argument("to", help="a new folder")
    add_report_options(command, _backup)


def _show(arguments: argparse.Namespace) -> Report:
    stored, checkpoint_id, layout = checkpoint_commands(arguments.path).last(arguments.path, settings_of(arguments))
    program, offsets = stored.program, {uid: one.offset for uid, one in sorted(stored.sources.items())}
    operators = [operator_row(uid, one, sorted(one.states)) for uid, one in sorted(program.operators.items())]
    where = "local runtime" if layout is None else f"{layout['partitions']} partitions, state layout {layout['state']}"
    text = [
        f"Checkpoint {checkpoint_id}",
        f"of the job {stored.job_name!r} after micro-batch {stored.batch_id},",
        f"{where}, written by Python {program.python}",
        "",
        *table(operators),
        "",
        *table([{"source": uid, "offset": json.dumps(offset)} for uid, offset in offsets.items()]),
    ]
    data = {
        "checkpoint_id": checkpoint_id,
        "job_name": stored.job_name,
        "batch_id": stored.batch_id,
        "layout": layout,
        "python": program.python,
        "operators": operators,
        "positions": offsets,
    }
    return Report(text, data)


def _verify(arguments: argparse.Namespace) -> Report:
    data = checkpoint_commands(arguments.path).verify(arguments.path, settings_of(arguments), arguments.state_key)
    return Report([f"The state after micro-batch {data['batch_id']} is complete.", "", *table(data["operators"])], data)


def _backup(arguments: argparse.Namespace) -> Report:
    folder = local_folder(arguments.path, _ONLY_LOCAL)
    if (kind := kind_of_folder(folder)) is not FolderKind.LOCAL:
        raise ConfigurationError(f"{folder.path} is {kind.value}. {_ONLY_LOCAL}")
    from dsv2.local.backup import back_up  # loads the runtime

    batch_id = back_up(arguments.path, arguments.to)
    return Report([f"{arguments.to} has the checkpoint as of micro-batch {batch_id}."], {"batch_id": batch_id})
