"""Every program in worker processes of the local runtime. In each setting all of them run side by side in one job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dsv2 import Dsv2Error, RuntimeExecutionMode
from dsv2.local import LocalRuntime
from tests.conformance.harness import Program, Run, Setting, run_programs
from tests.conformance.programs import PROGRAMS

PROCESSES = 3
# More subtasks than processes and fewer; several micro-batches with a checkpoint; restarts from rows and from pages.
SETTINGS = [
    Setting(4, portions=3, checks=False),
    Setting(2, portions=3),
    Setting(3, mode=RuntimeExecutionMode.BATCH),
]

pytestmark = pytest.mark.timeout(300)  # the first test of a setting runs all programs


@pytest.fixture(scope="module")
def runs_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Setting], dict[str, Run]]:
    """Returns the runs of all programs in a setting. The first call for a setting runs them."""
    done: dict[Setting, dict[str, Run] | Dsv2Error] = {}

    def runs(setting: Setting) -> dict[str, Run]:
        if setting not in done:
            folder = tmp_path_factory.mktemp("conformance")
            checkpoint = str(folder / "checkpoint") if setting.needs_checkpoint else None
            runtime = LocalRuntime(checks=setting.checks, processes=PROCESSES, durable=False)
            try:
                done[setting] = run_programs(PROGRAMS, setting, runtime, folder, checkpoint)
            except Dsv2Error as error:
                done[setting] = error  # every program of the setting fails with it, and is not run again
        result = done[setting]
        if isinstance(result, Dsv2Error):
            pytest.fail(f"The job of all programs failed: {result}", pytrace=False)
        return result

    return runs


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(setting: Setting, program: Program, runs_of: Callable[[Setting], dict[str, Run]]) -> None:
    run = runs_of(setting)[program.name]
    program.check(run)
    run.expect_counts()
    run.expect_ended_watermarks()
