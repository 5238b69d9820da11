"""What the small examples share: their options, and one run on the runtime that was asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import NamedTuple

from dsv2 import Dsv2Error, ExecutionEnvironment, RuntimeExecutionMode
from examples.console import format_table
from examples.session import new_session

__all__ = ("Table", "run_example")


class Table(NamedTuple):
    """What an example found, to be printed."""

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
    """Call ``run`` with an environment as the command line wants it, and print its table; returns the exit code.

    ``run`` builds the pipeline and calls ``execute`` with ``options.checkpoint``.
    """
    parser = argparse.ArgumentParser(prog=f"python -m examples.{module}", description=description)
    parser.add_argument(
        "--mode", choices=("local", "streaming", "batch"), default="local", help="local: in this process, no Spark"
    )
    parser.add_argument("--parallelism", type=int, default=2, help="subtasks of each function (default 2)")
    add_options(parser)
    options = parser.parse_args(arguments)
    try:
        with _environment(module, options) as env:
            title, header, rows = run(env, options)
    except Dsv2Error as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(title, "", format_table(header, rows), sep="\n")
    return 0


@contextmanager
def _environment(name: str, options: argparse.Namespace) -> Iterator[ExecutionEnvironment]:
    options.checkpoint = None
    if options.mode == "local":
        env = ExecutionEnvironment.get_instance(runtime="local")
        env.set_parallelism(options.parallelism)
        yield env
        return
    spark = new_session(name)
    try:
        with TemporaryDirectory() as folder:
            env = ExecutionEnvironment.get_instance(spark=spark)
            env.set_parallelism(options.parallelism)
            if options.mode == "batch":
                env.set_execution_mode(RuntimeExecutionMode.BATCH)
            else:
                options.checkpoint = folder
            yield env
    finally:
        spark.stop()
