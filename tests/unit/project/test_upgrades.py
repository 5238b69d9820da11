"""The example that upgrades hot topics, on the local runtime. Its events are compared with the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv2 import ExecutionEnvironment, JobHandle
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint
from examples.upgrades import RELEASES, main, upgrade
from tests.upgraded import check_events


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    def start(env: ExecutionEnvironment, savepoint: Path | None) -> JobHandle:
        return env.execute_async("hot topics", savepoint=savepoint)

    runtime = LocalRuntime(seed=seed, batches=(1, 7, 400))
    check_events(upgrade(tmp_path, lambda: ExecutionEnvironment.get_instance(runtime), start), tmp_path)
    parallelism = [
        Savepoint.open(tmp_path / str(number)).info.program.operators["detector"].parallelism
        for number in range(1, len(RELEASES) + 1)
    ]
    assert parallelism == [2, 3, 1, 8]


def test_program_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    output = capsys.readouterr().out
    assert "      3          1   1,500      91" in output
    assert "topic-1    25         173" in output
