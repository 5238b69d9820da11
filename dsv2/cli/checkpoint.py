"""``dsv2 checkpoint``: shows and verifies the checkpoints of jobs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dsv2.cli.command import add_command
from dsv2.cli.report import Report, table
from dsv2.cli.with_spark import add_settings, add_state_key, checkpoint_commands, settings_of

__all__ = ("add_commands",)


def add_commands(groups: Any) -> None:
    """Add the commands to those of ``dsv2``."""
    group = groups.add_parser("checkpoint", help="show and verify checkpoints of jobs")
    commands = group.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("show", _show, "show the program of a checkpoint and the positions of its sources"),
        ("verify", _verify, "read and decode all state of a checkpoint"),
    ):
        command = add_command(commands, name, text, f"checkpoint {name} /data/orders")
        command.add_argument("path", help="the checkpoint_location")
        command.add_argument("--json", action="store_true", help="print JSON")
        add_settings(command)
        if name == "verify":
            add_state_key(command)
        command.set_defaults(run=run)


def _show(arguments: argparse.Namespace) -> Report:
    data = checkpoint_commands(arguments.path).show(arguments.path, settings_of(arguments))
    layout = data["layout"]
    where = "local runtime" if layout is None else f"{layout['partitions']} partitions, state layout {layout['state']}"
    positions = [{"source": uid, "offset": json.dumps(offset)} for uid, offset in data["positions"].items()]
    text = [
        f"Checkpoint {data['checkpoint_id']}",
        f"of the job {data['job_name']!r} after micro-batch {data['batch_id']},",
        f"{where}, written by Python {data['python']}",
        "",
        *table(data["operators"]),
        "",
        *table(positions),
    ]
    return Report(text, data)


def _verify(arguments: argparse.Namespace) -> Report:
    data = checkpoint_commands(arguments.path).verify(arguments.path, settings_of(arguments), arguments.state_key)
    return Report([f"The state after micro-batch {data['batch_id']} is complete.", "", *table(data["operators"])], data)
