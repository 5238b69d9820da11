"""``dsv2 savepoint edit``: writes a changed copy of a savepoint."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsv2.cli.command import add_command
from dsv2.cli.dead_letters import open_letters
from dsv2.cli.report import Report
from dsv2.cli.spark_commands import (
    add_report_options,
    add_state_key,
    open_savepoint,
    session_for,
    settings_of,
    spark_commands,
    state_key_value,
)
from dsv2.dead_letters import LetterStatus, StoredLetter
from dsv2.dead_letters.letter_ids import LetterIds
from dsv2.errors import ConfigurationError
from dsv2.savepoint import Savepoint, SavepointEditor

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
