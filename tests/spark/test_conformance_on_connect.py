"""Conformance programs on Spark Connect, as one batch job and one streaming job.

A selection that covers all modules runs always as a batch job. The streaming job is nightly.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from components.spark_connect import ConnectServer
from tests import ROOT
from tests.conformance.programs import PROGRAMS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SELECTED = {
    *("keyed.key_by", "non-keyed.broadcast", "FanOut", "StraightToSinks", "Sugar"),
    *("KeyedTwoOutputs", "keyed-kept×keyed-kept", "keyed×broadcast", "min-wait-aligned", "WatermarkITCase-poll"),
    *("cut-two-inputs", "v-class", "v-quorum", "Handlers", "Idleness", "ProcessingTimers", "EventTimeLifecycle"),
    *("GeneratedEventTime", "Lifecycle", "Metrics", "OwnClasses", "SharedResource", "SideOutputsOfEveryKind"),
    *("SkippedRecords", "StoredLetters", "TablesForSinks", "StateInColumns", "DeclaredAggregates", "TopOfWindows"),
    *("SplitsGoTheirWay", "KeyedState", "BroadcastRules", "IntervalJoins", "ByTheClock", "SessionWindows"),
    *("FoldingWindows", "CustomTrigger", "TimeGoesOnInBatch", "EventTimersOfTheLastTimers", "WatermarksOfUnion"),
    *("RecordsThatDoNotFitASink", "PerKey", "SinksOfEveryKind", "BytesAndBack", "AsyncOrder", "LookupJoins"),
    "JoinedTables",
}


STREAMING = (
    *("keyed.key_by", "non-keyed.broadcast", "FanOut", "Sugar", "KeyedTwoOutputs", "ProcessingTimers", "Metrics"),
    *("SharedResource", "SkippedRecords", "StoredLetters", "SplitsGoTheirWay", "KeyedState", "SinksOfEveryKind"),
    *("SessionWindows", "Idleness", "cut-two-inputs", "BytesAndBack"),
)


@pytest.fixture(scope="module")
def wrong(
    connect_server: ConnectServer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Mapping[str, str]:
    """The faults of each program; empty for those that behave as expected."""
    runs_all = request.config.getoption("--all")
    names = [program.name for program in PROGRAMS if runs_all or program.name in SELECTED]
    return faults(connect_server, tmp_path_factory, "batch", names)


@pytest.fixture(scope="module")
def wrong_in_streaming(connect_server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The same in a streaming job."""
    return faults(connect_server, tmp_path_factory, "streaming", STREAMING)


def faults(
    server: ConnectServer, folders: pytest.TempPathFactory, mode: str, names: Sequence[str]
) -> Mapping[str, str]:
    """Run programs in one job, and return what is wrong with each."""
    folder = str(folders.mktemp("programs"))
    command = [sys.executable, "-m", "tests.spark.connect_programs", server.url, folder, mode, *names]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=850)
    if ran.returncode:
        pytest.fail(f"The job of all programs failed: {ran.stderr[-5_000:]}", pytrace=False)
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "name",
    [pytest.param(program.name, marks=() if program.name in SELECTED else pytest.mark.nightly) for program in PROGRAMS],
)
def test_program(name: str, wrong: Mapping[str, str]) -> None:
    assert wrong[name] == ""


@pytest.mark.nightly
@pytest.mark.parametrize("name", STREAMING)
def test_streaming_program(name: str, wrong_in_streaming: Mapping[str, str]) -> None:
    assert wrong_in_streaming[name] == ""


def test_selection_covers_all_modules() -> None:
    """Also, its names exist."""
    selected = [program for program in PROGRAMS if program.name in SELECTED]
    assert len(selected) == len(SELECTED)
    assert {type(program).__module__ for program in selected} == {type(program).__module__ for program in PROGRAMS}
