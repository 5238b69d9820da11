"""Parses the command line and runs a command."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from dsv2.cli import checkpoint, dashboard, dead_letters, files, job, new, savepoint, state, watermarks
from dsv2.cli.command import Report, print_error
from dsv2.errors import Dsv2Error
from dsv2.version import __version__

_SHELLS = ("bash", "zsh")


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--print-completion`` to the parser of ``dsv2``."""
    parser.add_argument(
        "--print-completion", action=_Print, choices=_SHELLS, help="print the completion of this command for a shell"
    )


class _Print(argparse.Action):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options, default=argparse.SUPPRESS)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        try:
            shtab = import_module("shtab")
        except ImportError:
            parser.exit(2, "dsv2: Completion requires shtab. Install it with: pip install 'dsv2[cli]'\n")
        print(shtab.complete(parser, str(values)))
        parser.exit()


_ERROR = 2
_INTERRUPTED = 130  # as for a process that SIGINT has ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    The code is 0 for success; 1 if ``diff`` finds differences, ``dead-letters`` no letters, ``check`` or ``explain`` an
    invalid pipeline, or the job of ``run`` failed; and 2 for an error, which is printed to standard error, without a
    traceback.

    Args:
        arguments: The arguments. None: those of the process.
    """
    words = sys.argv[1:] if arguments is None else arguments
    chosen = new_parser().parse_args(words)
    chosen.command = f"{_program()} {shlex.join(words)}"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an encoding may lack characters of uids and values
    with ExitStack() as chosen.contexts:
        try:
            report: Report = chosen.run(chosen)
            report.print(as_json=chosen.json)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader, such as head, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except KeyboardInterrupt:
            return _INTERRUPTED
        except (Dsv2Error, OSError) as error:
            print_error(str(error))
            return _ERROR
        except Exception as error:  # of Arrow or Spark
            print_error(f"{type(error).__name__}: {error}")
            return _ERROR
    return report.exit_code


def _program() -> str:
    """Return the name by which the user has called this program."""
    name = Path(sys.argv[0]).name
    return "python -m dsv2" if name == "__main__.py" else "dsv2"


def new_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="dsv2", description="Pipelines of dsv2, their savepoints, checkpoints, state, dead letters and files."
    )
    parser.add_argument("--version", action="version", version=f"dsv2 {__version__}")
    add_completion(parser)
    groups = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (new, job, dashboard, watermarks, savepoint, checkpoint, state, dead_letters, files):
        module.add_commands(groups)
    return parser
