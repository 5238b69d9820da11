"""``dsv2 dashboard``: shows jobs from their checkpoints as a web page."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from dsv2.base.folders import Folder
from dsv2.cli.command import Report, add_command, add_settings, add_state_key, folder_at, settings_of, spark_commands
from dsv2.errors import ConfigurationError
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.server import DashboardServer
from dsv2.views.dashboard.stored_job import CheckpointJob


def add_commands(groups: Any) -> None:
    """Add the command to those of ``dsv2``."""
    command = add_command(
        groups,
        "dashboard",
        "show jobs as a web page",
        "dashboard /data/orders",
        "dashboard /data/orders /data/payments --port 9000",
        "dashboard hdfs:///jobs/orders --host 0.0.0.0",
        description="Show jobs as a web page, from the progress in their checkpoints.",
        notes="The jobs may be running. The page needs no internet access. Ctrl-C ends it.",
    )
    add = command.add_argument
    add("checkpoint", nargs="+", help="the checkpoint_location of a job")
    add("--port", type=int, default=Dashboard.port, help=f"default: {Dashboard.port}; 0: a free one")
    add(
        "--host",
        default=Dashboard.host,
        help=f"the address to listen at (default: {Dashboard.host}, this machine only)",
    )
    add("--token", help="what browsers must present (default: a random one, if another host or actions require it)")
    add("--allow-actions", action="store_true", help="the page can take savepoints of checkpoints of Spark")
    add_state_key(command)
    add_settings(command)
    command.set_defaults(run=_run, json=False)


def _run(arguments: argparse.Namespace) -> Report:
    jobs = [CheckpointJob(_opened(path, arguments), _savepoints(path, arguments)) for path in arguments.checkpoint]
    server = DashboardServer(
        Dashboard(arguments.port, arguments.host, arguments.token, allow_actions=arguments.allow_actions)
    )
    for job in jobs:
        server.board.add(job)
    print(f"Dashboard: {server.url}", flush=True)
    server.join()
    return Report([])


def _opened(path: str, arguments: argparse.Namespace) -> Folder:
    folder = folder_at(path, arguments)
    if not folder.sizes():
        raise ConfigurationError(f"{path} is not the checkpoint of a job: it is empty or does not exist.")
    return folder


def _savepoints(path: str, arguments: argparse.Namespace) -> Callable[[str], str] | None:
    """Return the function that takes a savepoint of the checkpoint at ``path``, if actions are allowed."""
    if not arguments.allow_actions:
        return None
    spark, settings = spark_commands(), settings_of(arguments)
    return lambda target: str(spark.create(path, target, settings, arguments.state_key))
