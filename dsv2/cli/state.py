"""``dsv2 state``: shows and exports the states of a savepoint."""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from dsv2.cli.report import Report, json_value, table
from dsv2.errors import ConfigurationError
from dsv2.savepoint import Savepoint

__all__ = ("add_commands",)

_FORMATS = ("csv", "parquet", "json")


def add_commands(groups: Any) -> None:
    """Add the commands to those of ``dsv2``."""
    group = groups.add_parser("state", help="show and export the state of a savepoint")
    commands = group.add_subparsers(required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="print rows of a state", description="Print rows of a state.")
    export = commands.add_parser("export", help="write a state to a file", description="Write a state to a file.")
    for command in (show, export):
        command.add_argument("path", help="the folder of the savepoint")
        command.add_argument("operator", help="the uid of the operator")
        command.add_argument("state", help="the name of the state")
        command.add_argument("--json", action="store_true", help="print JSON")
    show.add_argument("--limit", type=int, default=20, help="the number of rows (default: 20)")
    export.add_argument("file", help=f"the file, whose suffix is the format: {', '.join(_FORMATS)}")
    show.set_defaults(run=_show)
    export.set_defaults(run=_export)


def _show(arguments: argparse.Namespace) -> Report:
    content = Savepoint.open(arguments.path).state(arguments.operator, arguments.state).to_arrow()
    rows: list[dict[str, Any]] = content.slice(0, arguments.limit).to_pylist()
    more = content.num_rows - len(rows)
    return Report([*table(rows), *([f"... and {more} more rows"] if more else [])], rows)


def _export(arguments: argparse.Namespace) -> Report:
    file = Path(arguments.file)
    kind = file.suffix.removeprefix(".")
    if kind not in _FORMATS:
        raise ConfigurationError(f"{file} has no known format. Its suffix must be one of: {', '.join(_FORMATS)}.")
    content = Savepoint.open(arguments.path).state(arguments.operator, arguments.state).to_arrow()
    if kind == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(content, file)
    elif kind == "csv":
        with file.open("w", encoding="utf-8", newline="") as opened:
            rows = csv.writer(opened, lineterminator="\n")
            rows.writerow(content.column_names)
            rows.writerows(map(_cell, row.values()) for row in content.to_pylist())
    else:
        with file.open("w", encoding="utf-8") as opened:
            opened.writelines(json.dumps(json_value(row)) + "\n" for row in content.to_pylist())
    return Report([f"{content.num_rows} rows were written to {file}."], {"rows": content.num_rows, "file": str(file)})


def _cell(value: object) -> object:
    """A value in CSV. Those with parts are JSON."""
    converted = json_value(value)
    return json.dumps(converted) if isinstance(converted, dict | list) else converted
