"""Planner processes do not see what ``--py-files`` ships: the class of a source brings its own import path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dsv2.base.clock import SystemClock
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.worker import pack_job
from runtime_spark.platform.closures import to_bytes
from runtime_spark.source.feeds import IndexedFeed
from runtime_spark.source.source_class import frame_source_class
from tests import ROOT
from tests.support import local_environment
from tests.without_project import new_environment

PLANNER = """
import pickle, sys
try:
    import dsv2
    raise SystemExit("the project is importable: the test shows nothing")
except ImportError:
    pass
from pyspark import cloudpickle
kind = pickle.load(sys.stdin.buffer)  # as Spark creates the source in one process
source = cloudpickle.loads(cloudpickle.dumps(kind({})))  # and sends it to another
assert "runtime_spark" not in sys.modules
reader = source.streamReader(source.schema())
print(source.name(), reader.latestOffset(reader.initialOffset()))
"""


def run_planner(tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    """Plan a source of three records in a Python that does not have the project."""
    source = DataGeneratorSource(int, count=3)
    env = local_environment()
    env.from_source(source).to_sink(CollectSink())
    plan = env.build_plan()
    packed = pack_job(plan, Layout.of(plan), TypeRegistry.of(plan))
    kind = frame_source_class("numbers", IndexedFeed(source), packed, 0, SystemClock())
    return subprocess.run(
        [new_environment(tmp_path / "environment"), "-c", PLANNER],
        input=to_bytes(kind),
        cwd=tmp_path,
        env={},
        capture_output=True,
        check=False,
    )


def test_planner_finds_the_modules_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])
    ran = run_planner(tmp_path)
    assert ran.stderr.decode() == ""
    assert ran.stdout.decode() == "numbers {'position': 3, 'ended': True}\n"


def test_planner_finds_the_project_that_is_installed_for_the_driver_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(ROOT.parent))  # so that the project is part of the installation
    monkeypatch.setattr(sys, "base_prefix", str(ROOT.parent))
    monkeypatch.setattr(sys, "path", [str(ROOT)])
    ran = run_planner(tmp_path)
    assert ran.stderr.decode() == ""
    assert ran.stdout.decode() == "numbers {'position': 3, 'ended': True}\n"
