"""Plots of the measurements."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import plots
from benchmarks.common.rows import Row, Rows


def measured(results: Path) -> Path:
    """Two contestants with several numbers of keys, kinds, levels, state sizes and latencies."""
    rows = Rows(results, "running_count")
    for contestant, pace in (("dsv2", 1000), ("Bytewax", 500)):
        for keys, kind in ((50_000, "tuple"), (1_000, "tuple"), (1_000, "dict")):
            rows.put(Row(contestant, keys, kind, 1000, 1000, [1000 / pace * (2 if kind == "dict" else 1)]))
    rows.put(Row("dsv2", 1_000, "tuple", 10, 10, [1.0]))  # smaller batches
    rows.put(Row("PyFlink", 1_000, "tuple", 1000, 1000, missing="not available"))
    Rows(results, "running_count", "another machine").put(Row("dsv2", 1_000, "tuple", 1000, 1000, [9.0]))
    growth = Rows(results, "growth")
    for levels in (2, 1):
        growth.put(Row("levels", levels, "tuple", 1000, 1000, [0.5 * levels]))
    header = ["records/s", "after s", "records", "50 % ms", "99 % ms", "longest ms"]
    for name, table in (
        ("state", {"header": ["layout", "keys held", "median ms"], "rows": [["map", 10, 5], ["map", 100, 6]]}),
        ("latency", {"header": header, "rows": [[1000, 20, 30, 450, 990, 999], [1000, 120, 30, 400, 900, 950]]}),
    ):
        (results / f"{name}.json").write_text(json.dumps({"tables": [table]}))
    return results


def test_all_measurements_are_plotted(tmp_path: Path) -> None:
    found = {plot.name: plot for plot in plots.plots_of(measured(tmp_path))}
    assert found.keys() == {"running_count_by_keys", "running_count_by_kind", "by_levels", "by_state", "latency"}
    by_keys = {"dsv2": [(1000, 1000), (50_000, 1000)], "Bytewax": [(1000, 500), (50_000, 500)]}
    assert found["running_count_by_keys"].lines == by_keys
    assert found["running_count_by_kind"].lines == {"dsv2": [(0, 1000), (2, 500)], "Bytewax": [(0, 500), (2, 250)]}
    assert found["by_levels"].lines == {"dsv2": [(1, 2000), (2, 1000)]}
    assert found["by_state"].lines == {"map": [(10, 5), (100, 6)]}
    assert found["latency"].lines == {"50 % ms": [(1000, 400)], "99 % ms": [(1000, 900)]}


def test_no_measurements_no_plots(tmp_path: Path) -> None:
    assert plots.plots_of(tmp_path) == []


def test_plots_are_drawn(tmp_path: Path) -> None:
    plots.main(["--results", str(measured(tmp_path))])
    drawn = {file.name for file in (tmp_path / "plots").iterdir()}
    assert drawn == {f"{plot.name}.svg" for plot in plots.plots_of(tmp_path)}
