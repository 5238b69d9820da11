"""The number of the micro-batch in tasks of classic sessions and of Spark Connect."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from runtime_spark.frames import worker
from runtime_spark.frames.worker import batch_id, batch_tag


@pytest.mark.parametrize(
    ("properties", "number"),
    [
        ({"streaming.sql.batchId": "12"}, 12),
        ({"spark.job.tags": f"spark-session-1-thread-2-{batch_tag(12)},operation-3"}, 12),
        ({"streaming.sql.batchId": "12", "spark.job.tags": batch_tag(3)}, 12),
        ({"spark.job.tags": "operation-3"}, 0),
        ({}, 0),
    ],
)
def test_number_of_the_micro_batch(properties: dict[str, str], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    task = SimpleNamespace(getLocalProperty=properties.get)
    monkeypatch.setattr(worker, "TaskContext", SimpleNamespace(get=lambda: task))
    assert batch_id() == number


def test_outside_of_a_task_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TaskContext", SimpleNamespace(get=lambda: None))
    assert batch_id() == 0
