"""Every program in worker processes of the local runtime. In each setting all of them run side by side in one job."""

from __future__ import annotations

import pytest

from dsv2 import RuntimeExecutionMode
from dsv2.local import LocalRuntime
from tests.conformance.harness import Program, Run, Setting, SharedRuns, run_programs
from tests.conformance.programs import PROGRAMS

PROCESSES = 3
# More subtasks than processes and fewer; several micro-batches with a checkpoint; restarts from rows and from pages.
SETTINGS = [
    Setting(4, portions=3, checks=False),
    Setting(2, portions=3),
    Setting(3, mode=RuntimeExecutionMode.BATCH),
]

pytestmark = pytest.mark.timeout(900)  # the first test of a setting runs all programs


@pytest.fixture(scope="module")
def runs_of(tmp_path_factory: pytest.TempPathFactory) -> SharedRuns:
    def run(setting: Setting) -> dict[str, Run]:
        folder = tmp_path_factory.mktemp("conformance")
        checkpoint = str(folder / "checkpoint") if setting.needs_checkpoint else None
        runtime = LocalRuntime(checks=setting.checks, processes=PROCESSES, durable=False)
        return run_programs(PROGRAMS, setting, runtime, folder, checkpoint)

    return SharedRuns(run)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(setting: Setting, program: Program, runs_of: SharedRuns) -> None:
    run = runs_of(setting)[program.name]
    program.check(run)
    run.expect_counts()
    run.expect_ended_watermarks()
