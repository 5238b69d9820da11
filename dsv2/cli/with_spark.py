"""Commands that need Spark are in ``runtime_spark``, which may not be installed."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from dsv2.errors import ConfigurationError

__all__ = ("add_settings", "settings_of", "spark_commands")


def add_settings(command: argparse.ArgumentParser) -> None:
    """Add the option ``--conf`` to a command."""
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, such as spark.master=yarn; may be repeated (default: Spark on this machine)",
    )


def settings_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the settings of Spark. Raises ``ConfigurationError`` for one without a value."""
    settings = {}
    for setting in arguments.conf:
        name, separator, value = setting.partition("=")
        if not name or not separator:
            raise ConfigurationError(f"--conf {setting}: write it as NAME=VALUE.")
        settings[name] = value
    return settings


def spark_commands() -> Any:
    """Return the module with the commands. Raises ``ConfigurationError`` if Spark is not installed."""
    try:
        return import_module("runtime_spark.command_line")
    except ImportError as error:
        raise ConfigurationError(
            f"This command needs Spark, which cannot be loaded ({error}). Install it with: pip install 'dsv2[spark]'"
        ) from error
