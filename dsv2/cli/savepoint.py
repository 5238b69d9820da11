"""``dsv2 savepoint``: creates, shows, verifies, compares and edits savepoints."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dsv2.cli.command import (
    Report,
    add_command,
    add_group,
    add_report_options,
    add_state_key,
    checkpoint_commands,
    open_savepoint,
    operator_row,
    session_for,
    settings_of,
    spark_commands,
    state_key_value,
    table,
)
from dsv2.cli.dead_letters import open_letters
from dsv2.dead_letters import LetterStatus, StoredLetter
from dsv2.dead_letters.letter_ids import LetterIds
from dsv2.errors import ConfigurationError
from dsv2.savepoint import Savepoint, SavepointEditor
from dsv2.savepoint.metadata import SinkPosition

_Apply = Callable[..., SavepointEditor]


def _set_position(editor: SavepointEditor, uid: str, text: str) -> SavepointEditor:
    try:
        offset = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"--set-position {uid} {text}: the offset is not JSON: {error}.") from error
    return editor.set_position(uid, offset)


_EDITS: Mapping[str, tuple[tuple[str, ...], str, _Apply]] = {
    "rename-operator": (("UID", "NEW"), "give an operator or a source another uid", SavepointEditor.rename_operator),
    "drop-operator": (("UID",), "drop an operator or a source", SavepointEditor.drop_operator),
    "rename-state": (("UID", "STATE", "NEW"), "rename a state", SavepointEditor.rename_state),
    "drop-state": (("UID", "STATE"), "drop a state", SavepointEditor.drop_state),
    "set-position": (("UID", "OFFSET"), "set where a source continues, as JSON; null: at its beginning", _set_position),
}
"""The changes by option: their arguments, the help, and the method."""


def add_edit(commands: Any) -> None:
    """Add the command to those of ``dsv2 savepoint``."""
    edit = add_command(
        commands,
        "edit",
        "write a changed copy of a savepoint",
        "savepoint edit /data/savepoint /data/edited --rename-operator count counts",
        "savepoint edit /data/savepoint /data/edited --set-position orders null",
        description="Write a changed copy of a savepoint. Changes are made in their order. The original stays.",
    )
    edit.add_argument("path", help="the folder of the savepoint")
    edit.add_argument("new", help="the folder of the copy, which must not exist or must be empty")
    for name, (arguments, text, _) in _EDITS.items():
        edit.add_argument(
            f"--{name}", nargs=len(arguments), metavar=arguments, action=_Append, dest="edits", default=[], help=text
        )
    edit.add_argument(
        "--replay",
        metavar="PATH",
        help="process dead letters again when a job starts from the copy: those in this checkpoint or folder that are "
        "new, and from before the savepoint",
    )
    add_state_key(edit)
    edit.add_argument("--spark", action="store_true", help="use Spark, for state that does not fit in memory")
    add_report_options(edit, _edit)


class _Append(argparse.Action):
    """Collects the changes of all options in their order."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        assert option_string is not None
        namespace.edits = [*namespace.edits, (self.option_strings[0].removeprefix("--"), values)]


def _edit(arguments: argparse.Namespace) -> Report:
    changes: Sequence[tuple[str, list[str]]] = arguments.edits
    if not changes and arguments.replay is None:
        raise ConfigurationError(f"Name a change: {', '.join(f'--{name}' for name in _EDITS)}, --replay.")
    savepoint = open_savepoint(arguments.path, arguments)
    editor = savepoint.edit()
    text, data = [], [{"change": name, "arguments": values} for name, values in changes]
    if arguments.replay is not None:
        letters = _letters_before(savepoint, arguments)
        editor = editor.replay(letters, state_key=state_key_value(arguments.state_key))
        text.append(f"replay {len(letters)} letters")
        data.insert(0, {"change": "replay", "arguments": [letter.id for letter in letters]})
    for name, values in changes:
        editor = _EDITS[name][2](editor, *values)
    spark = (
        spark_commands().session(settings_of(arguments)) if arguments.spark else session_for(arguments.new, arguments)
    )
    path = editor.write(arguments.new, spark=spark)
    text += [f"{name} {' '.join(values)}" for name, values in changes]
    return Report([*text, f"The new savepoint is in {path}."], {"path": path, "changes": data})


def _letters_before(savepoint: Savepoint, arguments: argparse.Namespace) -> list[StoredLetter]:
    """The new letters of the job of a savepoint, as of the savepoint."""
    origin, done = savepoint.origin, LetterIds(savepoint.info.replays.letters)
    letters = open_letters(arguments.replay, arguments)
    return [
        letter
        for letter in letters.letters
        if letter.job_id == origin.job_id
        and letter.batch_id <= origin.batch_id
        and letter.id not in done
        and letters.status(letter) is LetterStatus.NEW
    ]


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
            **operator_row(uid, operator, savepoint.operators[uid]),
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
