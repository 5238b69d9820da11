"""Commands that need Spark are in ``runtime_spark``, which may not be installed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from dsv2.base.folders import Folder
from dsv2.checkpoint.folder_kinds import FolderKind, check_no_savepoint, kind_of_folder
from dsv2.checks.paths import is_remote, local_folder
from dsv2.cli.report import Report
from dsv2.errors import ConfigurationError
from dsv2.savepoint import Savepoint


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
    except ImportError as error:
        raise ConfigurationError(
            f"This command needs Spark, which cannot be loaded ({error}). Install it with: pip install 'dsv2[spark]'"
        ) from error
