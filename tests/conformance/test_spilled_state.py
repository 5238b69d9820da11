"""Every program with the smallest memory budget: keyed state is stored after each piece of a frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from dsv2.local import LocalRuntime
from dsv2.runtime.operator.operator_task import OperatorTask
from tests.conformance.harness import Program, Run, Setting, run_programs
from tests.conformance.programs import PROGRAMS

SETTING = Setting(2, portions=2, checks=False)

pytestmark = pytest.mark.timeout(900)  # the first test runs all programs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    folder, spills, spill = tmp_path_factory.mktemp("conformance"), Counter[str](), OperatorTask.spill

    def counted(task: OperatorTask) -> None:
        spills[task.operator.uid] += 1
        spill(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsv2.runtime.state.page_budget._LEAST_WORKING", 1)
        patch.setattr("dsv2.runtime.operator.subtask._RECORDS_BETWEEN_CHECKS", 1)
        patch.setattr(OperatorTask, "spill", counted)
        runtime = LocalRuntime(checks=False, memory_budget=0, durable=False)
        yield run_programs(PROGRAMS, SETTING, runtime, folder, str(folder / "checkpoint"))
    assert len(spills) > 100


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: Program, runs: dict[str, Run]) -> None:
    run = runs[program.name]
    program.check(run)
    run.expect_counts()
    run.expect_ended_watermarks()
