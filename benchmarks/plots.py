"""Plots of the results in ``benchmarks/results``, written to ``benchmarks/results/plots`` as SVG.

They show throughput by keys and by kind of record (from the suite), by levels, records and executors (from ``growth``),
the time of a micro-batch by the size of state (from ``state``), and latency by rate (from ``latency``). Plots without
results are omitted. This requires matplotlib, from the dependency group ``bench`` of the development environment.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from benchmarks.common.report import RESULTS, Arguments
from benchmarks.common.rows import Row, Rows
from benchmarks.peers.jobs import JOBS

__all__ = ("Plot", "main", "plots_of")

NAME = "plots"

Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Points, by the name of the line."""


@dataclass(frozen=True)
class Plot:
    """A plot with lines, or with groups of bars if there are ``labels``; x is then the index of a label."""

    name: str
    title: str
    x: str
    y: str
    lines: Lines
    labels: tuple[str, ...] = ()
    logarithmic: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw all plots and return the exit code."""
    parser = Arguments(NAME, __doc__)
    options = parser.parse(arguments, {})
    results = options.results or RESULTS
    folder = results / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    for plot in plots_of(results):
        draw(plot, folder / f"{plot.name}.svg")
        print(folder / f"{plot.name}.svg")
    return 0


def plots_of(results: Path) -> list[Plot]:
    """The plots for which there are results."""
    plots = []
    for job in JOBS.values():
        rows = _of_one_machine(Rows(results, job.name).all())
        largest = [row for row in rows if row.size == max(row.size for row in rows)]
        if len(job.keys) > 1:
            by_keys = _lines([row for row in largest if row.kind == job.kinds[0]])
            plots.append(Plot(f"{job.name}_by_keys", job.title, "keys", "records/s", by_keys, logarithmic=True))
        by_kind = _bars([row for row in largest if row.keys == min(job.keys)], job.kinds)
        if len(job.kinds) > 1:
            plots.append(Plot(f"{job.name}_by_kind", job.title, "kind of records", "records/s", by_kind, job.kinds))
    growth = _of_one_machine(Rows(results, "growth").all())
    for part in ("records", "levels", "executors"):
        points = [(float(row.keys), row.pace) for row in growth if row.contestant == part]
        title = f"Running count by {part}"
        plots.append(Plot(f"by_{part}", title, part, "records/s", {"dsv2": points}, logarithmic=part == "records"))
    state = defaultdict(list)
    for layout, keys, milliseconds, *_ in _table(results, "state"):
        state[str(layout)].append((float(keys), float(milliseconds)))
    plots.append(Plot("by_state", "Micro-batches by state held", "keys held", "ms per batch", state, logarithmic=True))
    plots.append(_latency(results))
    return [plot for plot in plots if any(plot.lines.values())]


def _latency(results: Path) -> Plot:
    content = _report(results, "latency")
    header = content["tables"][0]["header"] if content else []
    columns = {name: index for index, name in enumerate(header) if "%" in name}
    lines = {  # of each rate the last measurement, in the warmest JVM
        name: list({float(row[0]): float(row[index]) for row in _table(results, "latency")}.items())
        for name, index in columns.items()
    }
    return Plot("latency", "Latency by rate", "records/s", "ms from due to the sink", lines, logarithmic=True)


def _of_one_machine(rows: Sequence[Row]) -> list[Row]:
    """The measurements of the processor that has the most of them."""
    measured = [row for row in rows if row.seconds]
    most = Counter(row.processor for row in measured).most_common(1)
    return [row for row in measured if row.processor == most[0][0]]


def _lines(rows: Sequence[Row]) -> Lines:
    lines = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.keys):
        lines[row.contestant].append((float(row.keys), row.pace))
    return lines


def _bars(rows: Sequence[Row], kinds: Sequence[str]) -> Lines:
    bars = defaultdict(list)
    for row in sorted(rows, key=lambda row: kinds.index(row.kind)):
        bars[row.contestant].append((float(kinds.index(row.kind)), row.pace))
    return {contestant: points for contestant, points in bars.items() if len(points) > 1}


def _report(results: Path, name: str) -> dict[str, Any] | None:
    file = results / f"{name}.json"
    content: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
    return content


def _table(results: Path, name: str) -> list[list[Any]]:
    content = _report(results, name)
    rows: list[list[Any]] = content["tables"][0]["rows"] if content else []
    return rows


def draw(plot: Plot, file: Path) -> None:
    """Write an SVG file, with the same bytes for the same numbers."""
    matplotlib.rcParams["svg.hashsalt"] = plot.name
    figure = Figure(figsize=(9, 5.5))
    axes = figure.subplots()
    width = 0.8 / max(1, len(plot.lines))
    for number, (name, points) in enumerate(plot.lines.items()):
        xs, ys = [x for x, _ in points], [y for _, y in points]
        if plot.labels:
            axes.bar([x - 0.4 + (number + 0.5) * width for x in xs], ys, width, label=name)
        else:
            axes.plot(xs, ys, marker="o", label=name)
    if plot.labels:
        axes.set_xticks(range(len(plot.labels)), plot.labels)
    if plot.logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set(title=plot.title, xlabel=plot.x, ylabel=plot.y)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
