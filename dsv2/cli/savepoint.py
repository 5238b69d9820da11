"""``dsv2 savepoint``: creates, shows, verifies, compares and edits savepoints."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from dsv2.cli.command import add_command, add_group
from dsv2.cli.edit import add_edit
from dsv2.cli.report import Report, table
from dsv2.cli.spark_commands import add_report_options, add_state_key, checkpoint_commands, open_savepoint, settings_of
from dsv2.savepoint.metadata import SinkPosition


def add_commands(groups: Any) -> None:
    """Add the commands to those of ``dsv2``."""
    commands = add_group(groups, "savepoint", "create, show, verify, compare and edit savepoints")
    create = add_command(
        commands,
        "create",
        "take a savepoint from a checkpoint",
        "savepoint create /data/orders /data/savepoint",
        "savepoint create hdfs:///jobs/orders hdfs:///savepoints/orders --conf spark.master=yarn",
        description="Take a savepoint from the checkpoint of a job, as of its last complete micro-batch.",
    )
    create.add_argument("checkpoint", help="the checkpoint_location of the job")
    create.add_argument("path", help="the folder of the savepoint, which must not exist or must be empty")
    add_state_key(create)
    add_report_options(create, _create)
    for name, run, paths, text in (
        ("show", _show, ["path"], "show what a savepoint holds"),
        ("verify", _verify, ["path"], "read all files of a savepoint and compare their digests"),
        ("diff", _diff, ["first", "second"], "compare two savepoints; the exit code is 1 if they differ"),
    ):
        command = add_command(commands, name, text, f"savepoint {name} {' '.join(f'/data/{path}' for path in paths)}")
        for path in paths:
            command.add_argument(path, help="the folder of the savepoint")
        add_report_options(command, run)
    add_edit(commands)


def _create(arguments: argparse.Namespace) -> Report:
    settings = settings_of(arguments)
    commands = checkpoint_commands(arguments.checkpoint)
    path = commands.create(arguments.checkpoint, arguments.path, settings, arguments.state_key)
    return Report([f"The savepoint is in {path}."], {"path": path})


def _show(arguments: argparse.Namespace) -> Report:
    savepoint = open_savepoint(arguments.path, arguments)
    info, program = savepoint.info, savepoint.info.program
    operators = [
        {
            "operator": uid,
            "kind": operator.kind.value,
            "parallelism": operator.parallelism,
            "states": ", ".join(savepoint.operators[uid]),
            "bytes": sum(info.files[name].size for name in info.files if name.startswith(_folders(info, uid))),
        }
        for uid, operator in sorted(program.operators.items())
    ]
    positions = [{"source": uid, "offset": json.dumps(offset)} for uid, offset in sorted(info.offsets.items())]
    sinks = {uid: asdict(sink) for uid, sink in sorted(info.sink_positions.items())}
    versions = f"dsv2 {info.dsv2}, Python {info.python}" + (f", Spark {info.spark}" if info.spark else "")
    text = [
        f"Savepoint {info.savepoint_id}",
        f"of the job {info.origin.job_name!r} ({info.origin.job_id}) after micro-batch {info.origin.batch_id},",
        f"written by {versions}",
        "",
        *table(operators),
        "",
        *table(positions),
        "",
        *table([{"sink": uid, **sink} for uid, sink in sinks.items()]),
    ]
    data = {
        "id": info.savepoint_id,
        "origin": asdict(info.origin),
        "dsv2": info.dsv2,
        "python": info.python,
        "spark": info.spark,
        "operators": operators,
        "positions": info.offsets,
        "sinks": sinks,
    }
    return Report(text, data)


def _sink(position: SinkPosition | None) -> str | None:
    if position is None:
        return None
    where = f"{position.kind.rpartition('.')[2]} {position.target}".rstrip()
    return f"{where} after micro-batch {position.batch_id} of {position.job_id}"


def _folders(info: Any, uid: str) -> tuple[str, ...]:
    return tuple(f"{found.folder}/" for found in info.tables if found.id.uid == uid)


def _verify(arguments: argparse.Namespace) -> Report:
    savepoint = open_savepoint(arguments.path, arguments)
    savepoint.verify()
    files = savepoint.info.files
    size = sum(file.size for file in files.values())
    return Report(
        [f"{len(files)} files with {size} bytes are as they were written."], {"files": len(files), "bytes": size}
    )


def _diff(arguments: argparse.Namespace) -> Report:
    first, second = (open_savepoint(path, arguments) for path in (arguments.first, arguments.second))
    found = first.diff(second)
    if not found:
        return Report(["The savepoints do not differ."], {"program": [], "positions": {}, "tables": [], "sinks": {}})
    tables = [
        {"operator": each.uid, "rows": each.kind, "state": each.state, **asdict(counts)}
        for each, counts in found.tables.items()
    ]
    positions = [
        {"source": uid, "first": json.dumps(before), "second": json.dumps(after)}
        for uid, (before, after) in found.positions.items()
    ]
    text = ["Program:", *(f"  {change}" for change in found.program or ["(no difference)"])]
    sinks = {uid: tuple(None if one is None else asdict(one) for one in both) for uid, both in found.sinks.items()}
    shown = [{"sink": uid, "first": _sink(both[0]), "second": _sink(both[1])} for uid, both in found.sinks.items()]
    text += ["", "Positions:", *table(positions), "", "Sinks:", *table(shown), "", "State:", *table(tables)]
    data = {"program": list(found.program), "positions": dict(found.positions), "sinks": sinks, "tables": tables}
    return Report(text, data, exit_code=1)
