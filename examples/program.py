"""The command line of the small examples, which run on any runtime."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import NamedTuple

from dsv2 import Dsv2Error, ExecutionEnvironment, JobStatus, RuntimeExecutionMode
from dsv2.views.terminal import signals_noted, watch
from examples.console import format_table
from examples.session import new_session

__all__ = ("INTERRUPTED", "Table", "execute", "number_of_subtasks", "run_example")

INTERRUPTED = 130
"""The exit code of a program that was interrupted by Ctrl-C."""
_MAX_SUBTASKS = 64


class Table(NamedTuple):
    """The printed result of an example."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | int]]


def run_example(
    module: str,
    description: str,
    run: Callable[[ExecutionEnvironment, argparse.Namespace], Table],
    arguments: Sequence[str] | None,
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> int:
    """Run an example with an environment according to the command line, and print its table.

    Args:
        module: The name of the example's module.
        description: The description for ``--help``.
        run: Builds the pipeline, calls ``execute``, and returns the table.
        arguments: The command line; None: that of the process.
        add_options: Adds options to the parser.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog=f"python -m examples.{module}", description=description)
    add = parser.add_argument
    add("--mode", choices=("streaming", "batch", "local"), default="streaming", help="local: in this process, no Spark")
    add("--parallelism", type=number_of_subtasks, default=2, metavar="N", help="subtasks of each function (default 2)")
    add("--dashboard", type=int, metavar="PORT", help="show the job as a web page at this port")
    add_options(parser)
    options = parser.parse_args(arguments)
    try:
        with _environment(module, options) as env:
            title, header, rows = run(env, options)
    except Dsv2Error as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    print(title, "", format_table(header, rows), sep="\n")
    return 0


def execute(env: ExecutionEnvironment, job_name: str, options: argparse.Namespace) -> None:
    """Run the pipeline of ``env`` until it ends. Raises ``KeyboardInterrupt`` if it was interrupted by Ctrl-C."""
    job = env.execute_async(job_name, checkpoint_location=options.checkpoint, dashboard=options.dashboard)
    watch(job, signals=options.signals)
    if job.status is JobStatus.STOPPED:
        raise KeyboardInterrupt


def number_of_subtasks(text: str) -> int:
    """Parse a parallelism that is suitable for one machine. A ``type`` for ``ArgumentParser``."""
    if not (text.isdecimal() and 1 <= int(text) <= _MAX_SUBTASKS):
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {_MAX_SUBTASKS}, got {text!r}")
    return int(text)


@contextmanager
def _environment(name: str, options: argparse.Namespace) -> Iterator[ExecutionEnvironment]:
    options.checkpoint = None
    options.signals = None
    if options.mode == "local":
        env = ExecutionEnvironment.get_instance(runtime="local")
        env.set_parallelism(options.parallelism)
        yield env
        return
    with signals_noted() as options.signals, TemporaryDirectory() as folder, new_session(name) as spark:
        env = ExecutionEnvironment.get_instance(spark=spark)
        env.set_parallelism(options.parallelism)
        if options.mode == "batch":
            env.set_execution_mode(RuntimeExecutionMode.BATCH)
        else:
            options.checkpoint = folder
        yield env
