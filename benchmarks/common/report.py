"""The report of a benchmark: conditions, tables and verdicts. It is printed, and stored as JSON and Markdown."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import SparkSession

__all__ = ("RESULTS", "Arguments", "Report", "conditions")

Cell: TypeAlias = str | int | float

RESULTS = Path(__file__).resolve().parent.parent / "results"
_PACKAGES = ("pyspark", "pandas", "pyarrow", "cloudpickle")


class Arguments(argparse.ArgumentParser):
    """A parser with the options of all benchmarks: ``--short`` and ``--results``."""

    def __init__(self, name: str, description: str | None) -> None:
        super().__init__(
            prog=f"./run bench {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.add_argument("--short", action="store_true", help="a short run to check that it works; stores no results")
        self.add_argument("--results", type=Path, metavar="DIR", help="directory of results (benchmarks/results)")

    def parse(self, arguments: Sequence[str] | None, short: Mapping[str, object]) -> argparse.Namespace:
        """Parse the options. ``short`` has the defaults of ``--short``."""
        if self.parse_args(arguments).short:
            self.set_defaults(**short)
        else:
            self.set_defaults(results=RESULTS)
        return self.parse_args(arguments)


def conditions(spark: SparkSession, name: str, arguments: Sequence[str] | None) -> dict[str, str]:
    """The conditions of a measurement. Call it before measuring."""
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--results")
    _, given = where.parse_known_args(arguments)  # the report does not contain its own location
    java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").collect()[0][0]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join(["./run", "bench", name, *given]),
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
        "java": str(java),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": str(os.cpu_count()),
        "load average before": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


@dataclass(frozen=True)
class Table:
    """A table with a title."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


@dataclass(frozen=True)
class Verdict:
    """A target and whether it was met."""

    claim: str
    measured: float
    wanted: str
    met: bool


@dataclass
class Report:
    """The report of one run of a benchmark."""

    name: str
    title: str
    conditions: dict[str, str]
    tables: list[Table] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Add a table."""
        self.tables.append(Table(title, tuple(header), [tuple(row) for row in rows]))

    def at_most(self, claim: str, measured: float, limit: float) -> None:
        """Add the verdict on ``claim``: ``measured`` must be at most ``limit``."""
        self.verdicts.append(Verdict(claim, measured, f"at most {limit:g}", measured <= limit))

    def at_least(self, claim: str, measured: float, limit: float) -> None:
        """Add the verdict on ``claim``: ``measured`` must be at least ``limit``."""
        self.verdicts.append(Verdict(claim, measured, f"at least {limit:g}", measured >= limit))

    def markdown(self) -> str:
        """Format the report as Markdown."""
        parts = [
            f"# {self.title}",
            *(f"## {table.title}\n\n{_grid(table.header, table.rows)}" for table in self.tables),
        ]
        if self.verdicts:
            rows = [(v.claim, v.measured, v.wanted, "met" if v.met else "not met") for v in self.verdicts]
            parts.append(f"## Targets\n\n{_grid(('target', 'measured', 'wanted', 'verdict'), rows)}")
        parts.append(f"## Conditions\n\n{_grid(('condition', 'value'), list(self.conditions.items()))}")
        return "\n\n".join(parts) + "\n"

    def publish(self, results: Path | None) -> None:
        """Print the report, and store it in ``results`` as ``NAME.md`` and ``NAME.json``."""
        print(self.markdown())
        if results is not None:
            results.mkdir(parents=True, exist_ok=True)
            (results / f"{self.name}.md").write_text(self.markdown())
            (results / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n")


def _grid(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Format a Markdown table with aligned columns: numbers right, text left."""
    numeric = [all(isinstance(cell, int | float) for cell in column) for column in zip(*rows, strict=True)]
    texts = [list(header), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(3, *map(len, column)) for column in zip(*texts, strict=True)]
    rule = [f"{'-' * (width - 1)}:" if right else "-" * width for width, right in zip(widths, numeric, strict=True)]
    lines = [
        [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        for line in texts
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}" if abs(cell) < 100 else f"{cell:.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
