"""The storm reports how much it has explored, and the counterexamples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storms import proofs
from tests.proofs.mutations import MUTATIONS

CASE = "gate, 2 channels, MIN (wait for all)"


def test_sizes_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert proofs.main(["--short", "--results", str(tmp_path), "--cases", CASE]) == 0
    report = json.loads((tmp_path / "proofs.json").read_text())
    gates, operators, *_, every = report["tables"][0]["rows"]
    assert gates[:4] == ["gate", "1", "156", "1,152"]
    assert operators[:3] == ["operator", "0", "0"]
    assert every[1:] == gates[1:]
    assert "156" in capsys.readouterr().out


def test_counterexample_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    next(fault for fault in MUTATIONS if fault.case == CASE).apply(monkeypatch)
    assert proofs.main(["--short", "--results", str(tmp_path), "--cases", CASE]) == 1
    assert "2. channel 1 sends" in (tmp_path / "proofs.md").read_text()


def test_processes_keep_the_order(tmp_path: Path) -> None:
    arguments = ["--short", "--results", str(tmp_path), "--cases", "gate, 1 channels, M"]
    assert proofs.main([*arguments, "--jobs", "2"]) == 0
    in_two = [one["name"] for one in json.loads((tmp_path / "rows" / "proofs.json").read_text())["results"]]
    assert proofs.main([*arguments, "--again"]) == 0
    in_one = [one["name"] for one in json.loads((tmp_path / "rows" / "proofs.json").read_text())["results"]]
    assert in_two == in_one
    assert len(in_two) > 6
