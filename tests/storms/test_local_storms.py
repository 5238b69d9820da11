"""The storms of local jobs, in the short form, the points of kills, and the disk that loses what was not forced."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

from storms import kills, soak
from storms.common.disk import Disk
from storms.common.kill_points import FROM_OUTSIDE, MOVES, POINTS, WORKER_POINTS
from tests import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "name"),
    [("1", "kills-local"), pytest.param("2", "kills-local-2", marks=pytest.mark.nightly)],
)
def test_killed_local_job_loses_and_repeats_nothing(processes: str, name: str, tmp_path: Path) -> None:
    given = ["--runtime", "local", "--processes", processes, "--short", "--results", str(tmp_path)]
    assert kills.main(given) == 0
    report = json.loads((tmp_path / f"{name}.json").read_text())
    assert all(verdict["met"] for verdict in report["verdicts"] if verdict["claim"].startswith("kills of"))


@pytest.mark.slow
def test_local_job_runs_on(tmp_path: Path) -> None:
    assert soak.main(["--runtime", "local", "--short", "--minutes", "0.1", "--results", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "soak-local.json").read_text())
    samples, output = (table["rows"] for table in report["tables"])
    assert samples  # their number depends on the machine
    assert output == [["all micro-batches", "each number once, counted right"]]


@pytest.mark.parametrize(
    "point", sorted({*POINTS.values(), *MOVES.values(), *WORKER_POINTS.values(), *FROM_OUTSIDE.values()} - {""})
)
def test_phase_is_a_function(point: str) -> None:
    file, _, function = point.partition(":")
    module = import_module(f"dsv2.{file.removesuffix('.py').replace('/', '.')}")
    assert attrgetter(function)(module).__code__.co_qualname == function


@pytest.mark.slow
@pytest.mark.parametrize("durable", ["yes", "no"])
def test_loss_of_what_was_not_forced_is_reported(durable: str, tmp_path: Path) -> None:
    job = kills.Job("toy", "tests.storms.toy_local", (durable,), launcher="storms.common.launch_locally")
    life = kills.live(job, f"toy {durable}", tmp_path, [("machine", "mark")] * 4, kills.prepared(job))
    assert (life.output == kills.EQUAL) == (durable == "yes")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("fsync", "fdatasync", "rename", "replace", "unlink", "remove", "ftruncate"):
        monkeypatch.setattr(os, name, getattr(os, name))  # undoes what a disk sets
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def write(file: Path, content: str, *, force: bool) -> None:
    with open(file, "a") as opened:
        opened.write(content)
        opened.flush()
        if force:
            os.fsync(opened.fileno())


def force(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


def test_files_that_were_forced_survive(folder: Path) -> None:
    for seed in range(20):
        disk, file = Disk(folder.parent, random.Random(seed)), folder / f"{seed}"
        write(file, "x" * 1000, force=True)
        os.replace(file, folder / "file")
        force(folder)
        disk.lose_power()
        assert (folder / "file").read_text() == "x" * 1000


def test_what_was_not_forced_is_sometimes_lost(folder: Path) -> None:
    found = set()
    for seed in range(40):
        write(folder / "old", "o", force=False)
        write(folder / "moved", "m", force=False)
        disk = Disk(folder.parent, random.Random(seed))
        write(folder / "new", "n" * 600, force=False)
        force(folder)
        write(folder / "name", "n", force=True)
        os.unlink(folder / "old")
        os.replace(folder / "moved", folder / "target")
        disk.lose_power()
        found |= {(file.name, file.read_bytes().count(b"n") == 600) for file in folder.iterdir()}
        found.add(("lost", (folder / "name").exists()))
        assert (folder / "moved").exists() != (folder / "target").exists()
        for file in folder.iterdir():
            file.unlink()
    names = {(name, False) for name in ("old", "moved", "target", "new", "name", "lost")}
    assert found == names | {("new", True), ("lost", True)}


def test_end_of_a_file_that_was_written_again_is_sometimes_lost(folder: Path) -> None:
    found = set()
    for seed in range(20):
        disk, file = Disk(folder.parent, random.Random(seed)), folder / f"{seed}"
        write(file, "x" * 1000, force=True)
        force(folder)
        with open(file, "r+b") as opened:
            os.ftruncate(opened.fileno(), 500)
            opened.write(b"y" * 1000)
        disk.lose_power()
        found.add(file.read_bytes()[500:] == b"y" * 500)
    assert found == {True, False}


OTHER_PROCESS = """
import os, sys
from pathlib import Path
from storms.common.disk import Disk

folder = Path(sys.argv[1])
Disk.joined(folder.parent)
for name in ("safe", "unsafe"):
    with open(folder / name, "w") as opened:
        opened.write("x" * 600)
        opened.flush()
        if name == "safe":
            os.fsync(opened.fileno())
            entry = os.open(folder, os.O_RDONLY)
            os.fsync(entry)
"""


def test_what_another_process_has_not_forced_is_sometimes_lost(folder: Path) -> None:
    found = set()
    for seed in range(8):
        disk = Disk(folder.parent, random.Random(seed))
        subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(folder)], cwd=ROOT, check=True)
        disk.lose_power()
        assert (folder / "safe").read_text() == "x" * 600
        found.add((folder / "unsafe").exists() and (folder / "unsafe").read_text() == "x" * 600)
        for file in folder.iterdir():
            file.unlink()
    assert found == {True, False}
