"""The short form of the benchmark of progress, which needs no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import progress


def test_it_compares_jobs_with_and_without_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert progress.main(["--short", "--results", str(tmp_path)]) == 0
    stored = json.loads((tmp_path / "progress.json").read_text())
    times, sizes = stored["tables"]
    assert [row[0] for row in times["rows"]] == ["pass-through", "sum per key"]
    assert sizes["rows"][0][0] == 256
    assert "CPU time per record" in capsys.readouterr().out
