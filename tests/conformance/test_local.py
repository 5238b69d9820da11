"""Every program on the local runtime, in every setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv2.local import LocalRuntime
from tests.conformance.harness import LOCAL_SETTINGS, NIGHTLY_LOCAL_SETTINGS, Program, Setting, run_programs
from tests.conformance.programs import PROGRAMS
from tests.profiles import nightly

SETTINGS = [*LOCAL_SETTINGS, *nightly(*NIGHTLY_LOCAL_SETTINGS)]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: Program, setting: Setting, tmp_path: Path) -> None:
    batches = () if setting.batch is None else (setting.batch,)
    runtime = LocalRuntime(seed=setting.seed, batches=batches, checks=setting.checks)
    run = run_programs([program], setting, runtime, tmp_path)[program.name]
    program.check(run)
    run.expect_counts()
    run.expect_ended_watermarks()
