"""Adds commands with the same form of help."""

from __future__ import annotations

import argparse
from typing import Any


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
