"""``dsv2 state``: shows and exports the states of a savepoint."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv2.base.json_values import json_value
from dsv2.cli.command import Report, add_command, add_group, add_report_options, open_savepoint, table
from dsv2.errors import ConfigurationError
from dsv2.savepoint import StateTable

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_AT_ONCE = 10_000


def add_commands(groups: Any) -> None:
    """Add the commands to those of ``dsv2``."""
    commands = add_group(groups, "state", "show and export the state of a savepoint")
    show = add_command(commands, "show", "print rows of a state", "state show /data/savepoint counts count --limit 5")
    export = add_command(
        commands, "export", "write a state to a file", "state export /data/savepoint counts count counts.parquet"
    )
    for command, run in ((show, _show), (export, _export)):
        command.add_argument("path", help="the folder of the savepoint")
        command.add_argument("operator", help="the uid of the operator")
        command.add_argument("state", nargs="?", help="the name of the state; omitted: what windows or a join keep")
        command.add_argument("--version", type=_count, help="the version of the values (default: the current one)")
        add_report_options(command, run)
    show.add_argument("--limit", type=_count, default=20, help="the number of rows (default: 20)")
    export.add_argument("file", help=f"the file, whose suffix is the format: {', '.join(_WRITERS)}")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)


def _table(arguments: argparse.Namespace) -> StateTable:
    savepoint = open_savepoint(arguments.path, arguments)
    if arguments.state is None:
        return savepoint.contents(arguments.operator)
    return savepoint.state(arguments.operator, arguments.state, version=arguments.version)


def _show(arguments: argparse.Namespace) -> Report:
    rows: list[dict[str, Any]] = []
    number = 0
    content = _table(arguments)
    for part in content.parts():
        rows += part.slice(0, arguments.limit - len(rows)).to_pylist()
        number += part.num_rows
    more = number - len(rows)
    text = [*table(rows), *([f"... and {more} more rows"] if more else [])]
    return Report([*text, *map(_not_converted, content.other_versions)], rows)


def _not_converted(version: int) -> str:
    return f"There are also values of version {version}, which the job has not converted: --version {version}"


def _export(arguments: argparse.Namespace) -> Report:
    file = Path(arguments.file)
    write = _WRITERS.get(file.suffix.removeprefix("."))
    if write is None:
        raise ConfigurationError(f"{file} has no known format. Its suffix must be one of: {', '.join(_WRITERS)}.")
    content = _table(arguments)
    rows = write(content.parts(), file)
    text = [f"{rows} rows were written to {file}.", *map(_not_converted, content.other_versions)]
    data = {"rows": rows, "file": str(file), "other_versions": list(content.other_versions)}
    return Report(text, data)


def _write_csv(parts: Iterator[pa.Table], file: Path) -> int:
    """Nested values are JSON, and so are strings within them. A value that is null is empty."""
    written = 0
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_MINIMAL, doublequote=True)
        for number, part in enumerate(parts):
            if number == 0:
                writer.writerow(part.column_names)
            for row in _rows(part):
                writer.writerow(map(_csv_cell, row.values()))
            written += part.num_rows
    return written


def _csv_cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _write_json(parts: Iterator[pa.Table], file: Path) -> int:
    """One object in each line."""
    written = 0
    with file.open("w", encoding="utf-8") as out:
        for part in parts:
            for row in _rows(part):
                out.write(json.dumps(row, allow_nan=False) + "\n")
            written += part.num_rows
    return written


def _write_parquet(parts: Iterator[pa.Table], file: Path) -> int:
    import pyarrow.parquet as pq

    first = next(parts)
    written: int = first.num_rows
    with pq.ParquetWriter(file, first.schema, coerce_timestamps="us") as writer:
        writer.write_table(first)
        for part in parts:
            writer.write_table(part)
            written += part.num_rows
    return written


def _rows(part: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in part.to_batches(_ROWS_AT_ONCE):
        yield from map(json_value, batch.to_pylist())


_WRITERS: dict[str, Callable[[Iterator[pa.Table], Path], int]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "json": _write_json,
}
