"""``dsv2 checkpoint``: shows and verifies the checkpoints of jobs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dsv2.cli.command import (
    Report,
    add_command,
    add_group,
    add_report_options,
    add_state_key,
    checkpoint_commands,
    settings_of,
    table,
)


def add_commands(groups: Any) -> None:
    """Add the commands to those of ``dsv2``."""
    commands = add_group(groups, "checkpoint", "show and verify checkpoints of jobs")
    for name, run, text in (
        ("show", _show, "show the program of a checkpoint and the positions of its sources"),
        ("verify", _verify, "read and decode all state of a checkpoint"),
    ):
        command = add_command(commands, name, text, f"checkpoint {name} /data/orders")
        command.add_argument("path", help="the checkpoint_location")
        if name == "verify":
            add_state_key(command)
        add_report_options(command, run)


def _show(arguments: argparse.Namespace) -> Report:
    stored, checkpoint_id, layout = checkpoint_commands(arguments.path).last(arguments.path, settings_of(arguments))
    program, offsets = stored.program, {uid: one.offset for uid, one in sorted(stored.sources.items())}
    operators = [
        {
            "operator": uid,
            "kind": operator.kind.value,
            "parallelism": operator.parallelism,
            "states": ", ".join(sorted(operator.states)),
        }
        for uid, operator in sorted(program.operators.items())
    ]
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
