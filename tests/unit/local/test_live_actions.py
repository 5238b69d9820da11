"""Requests that change a running local job: replay of dead letters, and other error policies."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ErrorPolicy, ExecutionEnvironment, JobHandle, JobStatus
from dsv2.errors import UserFunctionError
from dsv2.jobs import JobListener, JobProgress
from dsv2.local import LocalRuntime
from dsv2.sinks import ForeachBatchSink, SinkInfo
from dsv2.testing import ManualClock
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.server import server_of
from tests.dashboard_client import TOKEN, ask
from tests.durations import LONG
from tests.spans import Item, Spans

SETTINGS = Dashboard(0, token=TOKEN, allow_actions=True)
BROKEN = threading.Event()
"""Set while the function fails for multiples of 5."""


def number_of(item: Item) -> int:
    if BROKEN.is_set() and item.number % 5 == 0:
        raise ValueError(item.number)
    return item.number


class Runs(ForeachBatchSink[int]):
    """Notes when a run begins."""

    def __init__(self, job: Job) -> None:
        self._job = job
        super().__init__(job.add)

    def __deepcopy__(self, memo: object) -> Runs:
        return self

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        super().begin(info, batch_id)
        self._job.note_run()


class Job(JobListener):
    """A job that reads as many numbers as a test gives it.

    Attributes:
        seen: The numbers that the sink has received.
        complete: How many of them are of complete micro-batches, whose letters are stored as well.
    """

    def __init__(self, policy: ErrorPolicy, checkpoint: Path | None) -> None:
        self.spans = Spans({"a": 0}, bounded=False)
        self.seen: list[int] = []
        self.complete = 0
        self.runs = 0
        self._changed = threading.Condition()
        env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, clock=ManualClock()))
        env.add_job_listener(self)
        numbers = env.from_source(self.spans).with_uid("in").map(number_of).with_uid("numbers")
        numbers.with_error_policy(policy).to_sink(Runs(self)).with_uid("out")
        self.handle = env.execute_async("numbers", checkpoint_location=checkpoint, dashboard=SETTINGS)

    def add(self, records: list[int], batch_id: int) -> None:
        self.seen += records

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        with self._changed:
            self.complete = len(self.seen)
            self._changed.notify_all()

    def note_run(self) -> None:
        with self._changed:
            self.runs += 1
            self._changed.notify_all()

    def await_run(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.runs >= number, LONG)

    def read_to(self, end: int, *, seen: int) -> None:
        self.spans.ends["a"] = end
        self.await_numbers(seen)

    def await_numbers(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.complete >= count, LONG)

    def post(self, action: str, body: object) -> tuple[int, str]:
        server, _ = server_of(SETTINGS)
        (job,) = json.loads(ask(server, "/api/jobs", BEARER).body)
        answer = ask(server, f"/api/jobs/{job['id']}/{action}", BEARER, method="POST", body=body)
        return answer.status, json.loads(answer.body)["message"]


BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(autouse=True)
def ended() -> Iterator[list[Job]]:
    jobs: list[Job] = []
    BROKEN.set()
    yield jobs
    for job in jobs:
        job.handle.stop()
    server_of(SETTINGS)[0].close()


def test_dead_letters_are_processed_again(ended: list[Job], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(ErrorPolicy().dead_letter(), tmp_path)
    ended.append(job)
    job.read_to(12, seen=9)
    BROKEN.clear()
    assert job.post("replay", {"letters": ["x.1"]})[0] == 409
    status, message = job.post("replay", {"letters": None})
    assert (status, message) == (
        200,
        "3 letters will be processed again: the job begins again from its checkpoint.",
    )
    job.await_numbers(12)
    assert sorted(job.seen) == [*range(12)]
    status, message = job.post("replay", {"letters": None})
    assert (status, message) == (409, "There are no such dead letters that could be processed again.")
    job.read_to(15, seen=15)
    assert job.handle.status is JobStatus.RUNNING
    assert "Job 'numbers', requested by 127.0.0.1: replay of the dead letters that are new" in caplog.messages


def test_error_policy_changes(ended: list[Job], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(ErrorPolicy().skip(KeyError).retry(TypeError, times=1), tmp_path)
    ended.append(job)
    body = {"operator": "numbers", "rules": [{"action": "skip", "errors": ["ValueError"]}], "limit": 2}
    with caplog.at_level(logging.WARNING):
        assert job.post("error-policy", body)[0] == 200
    job.await_run(2)
    job.read_to(9, seen=7)
    assert job.seen == [1, 2, 3, 4, 6, 7, 8]
    assert any("error policy of numbers" in message for message in caplog.messages)
    job.spans.ends["a"] = 11
    with pytest.raises(UserFunctionError, match="allows 2 failures in total"):
        job.handle.await_termination()


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"operator": "other"}, 409, "The job has no function or source 'other'."),
    ({"operator": "out"}, 409, "The job has no function or source 'out'."),
    ({"rules": [{"action": "skip", "errors": ["shop.None"]}]}, 400, "has not imported an exception 'shop.None'"),
    ({"rules": [{"action": "skip", "errors": ["print"]}]}, 400, "skip takes subclasses of Exception"),
    ({"rules": [{"action": "skip"}]}, 409, "is a part of the tasks of its source"),
    ({"rules": [{"action": "retry"}]}, 400, "The body is"),
    ({"rules": [{"action": "skip"}, {"action": "fail", "errors": ["ValueError"]}]}, 400, "would never apply"),
]


def test_policies_that_are_refused(ended: list[Job], tmp_path: Path) -> None:
    job = Job(ErrorPolicy(), tmp_path)
    job.await_run(1)
    ended.append(job)
    for change, status, message in REFUSED:
        found, text = job.post("error-policy", {"operator": "numbers", "rules": [], **change})
        assert (found, message in text) == (status, True), (change, text)
    assert job.handle.status is JobStatus.RUNNING


def test_jobs_without_a_checkpoint_cannot_begin_again(ended: list[Job]) -> None:
    job = Job(ErrorPolicy(), None)
    ended.append(job)
    status, text = job.post("error-policy", {"operator": "numbers", "rules": []})
    assert (status, text) == (409, "The job 'numbers' has no checkpoint_location from which it could begin again.")
