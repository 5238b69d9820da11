"""Resources in the workers of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.processes import JobProcess


@pytest.mark.spark
@pytest.mark.slow
def test_each_worker_opens_it_once_and_closes_it_at_the_end(tmp_path: Path) -> None:
    with JobProcess(tmp_path, "resource_job") as program:
        program.start()
        program.wait_for_session()  # workers close their resources when the driver has ended
        program.finish()
    notes = [line.rsplit(" ", 1) for line in (tmp_path / "notes").read_text().splitlines()]
    (batches,) = (int(event.split()[1]) for event, _ in notes if event.startswith("batches"))
    assert batches >= 5
    for kind in ("", " async"):
        opened, closed = (sorted(pid for event, pid in notes if event == f"{what}{kind}") for what in ("open", "close"))
        assert 0 < len(opened) == len(set(opened)) < batches, "by workers, whose number is up to Spark"
        assert closed == opened
