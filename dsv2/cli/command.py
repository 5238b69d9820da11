"""The parts that commands share: their help, their reports, and access to Spark.

Commands that need Spark are in ``runtime_spark``, which may not be installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from dsv2.base.folders import Folder
from dsv2.base.json_values import json_value
from dsv2.base.printable import printable, printable_lines
from dsv2.base.record_table import aligned
from dsv2.checkpoint.folder_kinds import FolderKind, check_no_savepoint, kind_of_folder
from dsv2.checkpoint.program import OperatorDescription
from dsv2.checks.paths import is_remote, local_folder
from dsv2.errors import ConfigurationError, MissingLibraryError
from dsv2.savepoint import Savepoint

ERROR_PREFIX = "dsv2: "
_MAX_CELL = 120


@dataclass(frozen=True)
class Report:
    """The result of a command.

    Attributes:
        text: Lines for people.
        data: The same as JSON values.
        exit_code: The exit code of the command.
    """

    text: Sequence[str]
    data: Any = field(default_factory=dict)
    exit_code: int = 0

    def print(self, *, as_json: bool) -> None:
        """Print to standard output."""
        if as_json:
            print(json.dumps(json_value(self.data), indent=2, allow_nan=False))
        elif self.text:
            print(printable_lines("\n".join(self.text)))


def print_error(text: str) -> None:
    """Print an error to standard error."""
    print(f"{ERROR_PREFIX}{printable_lines(text)}", file=sys.stderr)


def table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Format rows with the same columns as lines. Numbers are aligned to the right, long values are cut."""
    if not rows:
        return ["(none)"]
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    right = [all(isinstance(row[name], int | float | None) for row in rows) for name in names]
    return aligned(cells, right)


def operator_row(uid: str, operator: OperatorDescription, states: Iterable[str]) -> dict[str, object]:
    """Return the row of an operator in a table."""
    kind, listed = operator.kind.value, ", ".join(states)
    return {"operator": uid, "kind": kind, "parallelism": operator.parallelism, "states": listed}


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    shown = text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 3]}..."
    return printable(shown)


def add_group(groups: Any, name: str, text: str) -> Any:
    """Add a group of commands. Returns what ``add_command`` adds them to. ``text``: What they do."""
    return groups.add_parser(name, help=text).add_subparsers(required=True, metavar="COMMAND")


def add_command(
    commands: Any, name: str, text: str, *examples: str, description: str | None = None, notes: str = ""
) -> argparse.ArgumentParser:
    """Add a command.

    Args:
        commands: What ``add_group`` or ``add_subparsers`` has returned.
        name: The name of the command.
        text: What it does, for the list of commands.
        examples: Command lines, without ``dsv2``.
        description: The same in more detail. None: the text as a sentence.
        notes: What else there is to know, after the examples.
    """
    shown = "\n".join(f"  dsv2 {example}" for example in examples)
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=description or f"{text[0].upper()}{text[1:]}.",
        epilog=f"examples:\n{shown}\n{notes and chr(10)}{notes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return command


def add_settings(command: argparse.ArgumentParser) -> None:
    """Add the option ``--conf`` to a command."""
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, such as spark.master=yarn; may be repeated (default: Spark on this machine)",
    )


def add_report_options(command: argparse.ArgumentParser, run: Callable[[argparse.Namespace], Report]) -> None:
    """Let a command call ``run``, whose report it can print as JSON, with settings of Spark."""
    command.add_argument("--json", action="store_true", help="print JSON")
    add_settings(command)
    command.set_defaults(run=run)


def add_state_key(command: argparse.ArgumentParser) -> None:
    """Add the option ``--state-key`` to a command that reads the state of a checkpoint."""
    command.add_argument("--state-key", metavar="FILE", help="a file with the key of the job, if its state is signed")


def state_key_value(file: str | None) -> bytes | None:
    """Return the key in a file with which state is signed; None without a file."""
    value: bytes | None = None if file is None else spark_commands().state_key(file).value
    return value


def settings_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the settings of Spark. Raises ``ConfigurationError`` for one without a value."""
    return values_of("--conf", arguments.conf)


def values_of(option: str, given: Iterable[str]) -> dict[str, str]:
    """Return the values by name that were given to an option. Raises ``ConfigurationError`` for one without a value."""
    values = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise ConfigurationError(f"{option} {text}: write it as NAME=VALUE.")
        values[name] = value
    return values


def session_for(path: str, arguments: argparse.Namespace) -> Any:
    """Return the Spark session that reads ``path``; None if it is on the local disk."""
    return spark_commands().session(settings_of(arguments)) if is_remote(path) else None


def open_savepoint(path: str, arguments: argparse.Namespace) -> Savepoint:
    """Open a savepoint, with Spark if it is not on the local disk."""
    return Savepoint.open(path, spark=session_for(path, arguments))


def folder_at(path: str, arguments: argparse.Namespace, advice: str = "") -> Folder:
    """Return a folder of checkpoints or files, with Spark if it is not on the local disk.

    ``advice``: For the error of a path that is on no file system that this program knows.
    """
    if not is_remote(path):
        return local_folder(path, advice)
    folder: Folder = spark_commands().open_files(path, settings_of(arguments))
    return folder


def checkpoint_commands(path: str) -> Any:
    """Return the module with the commands for the checkpoint ``path``: those of the local runtime need no Spark.

    Raises:
        ConfigurationError: It is a savepoint, or Spark is required and not installed.
    """
    if not is_remote(path):
        folder = local_folder(path, "")
        kind = kind_of_folder(folder)
        check_no_savepoint(folder.path, kind)
        if kind is FolderKind.LOCAL:
            from dsv2.local import command_line  # loads the runtime

            return command_line
    return spark_commands()  # the default file system of Spark may be another one


def spark_commands() -> Any:
    """Return the module with the commands. Raises ``ConfigurationError`` if Spark is not installed."""
    try:
        return import_module("runtime_spark.command_line")
    except MissingLibraryError:
        raise
    except ImportError as error:
        raise ConfigurationError(
            f"This command needs Spark, which cannot be loaded ({error}). Install it with: pip install 'dsv2[spark]'"
        ) from error
