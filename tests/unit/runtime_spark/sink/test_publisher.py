"""Micro-batches of file sinks are published when they are committed, and never before."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dsv2 import JobError
from runtime_spark.sink.publisher import Publisher
from tests.durations import LONG

NOW_MS = 100


class Sink:
    def __init__(self, fails: str = "") -> None:
        self.done: list[str] = []
        self.published = threading.Event()
        self.due: int | None = None
        self._fails = fails

    def _do(self, what: str) -> None:
        if what == self._fails:
            raise JobError(f"cannot {what}")
        self.done.append(what)

    def publish(self) -> None:
        self._do("publish")
        self.published.set()

    def is_due(self) -> bool:
        return self.due is not None and self.due <= NOW_MS

    def roll(self) -> None:
        self.due = None
        self._do("roll")

    def finish(self) -> None:
        self._do("finish")


class Job:
    """A job whose micro-batches are committed by the test."""

    def __init__(self, *sinks: Any) -> None:
        self.committed = -1
        self.over = False
        self.normally = True
        self.publisher = Publisher(
            sinks, lambda batch: batch <= self.committed, lambda: self.over, lambda: self.normally
        )
        if sinks:
            self.publisher.start()

    def end(self) -> None:
        self.over = True
        self.publisher.end()


def test_published_after_the_commit_and_before_the_next() -> None:
    sink = Sink()
    job = Job(sink)
    job.publisher.await_published()  # nothing yet
    job.publisher.prepared(0)
    assert not sink.published.wait(0.05)
    job.committed = 0
    assert sink.published.wait(LONG)  # also without a next micro-batch
    job.publisher.await_published()
    for batch in range(1, 4):
        job.publisher.prepared(batch)
        job.committed = batch
        job.publisher.await_published()
        assert sink.done == ["publish"] * (batch + 1)
    job.end()
    assert sink.done[4:] == ["finish"]


def test_last_micro_batch_of_a_job() -> None:
    sink = Sink()
    job = Job(sink)
    job.publisher.prepared(0)
    job.committed = 0
    job.end()
    assert sink.done == ["publish", "finish"]


def test_micro_batch_that_is_not_committed() -> None:
    sink = Sink()
    job = Job(sink)
    job.publisher.prepared(0)
    job.end()
    assert sink.done == []


def test_job_that_failed_publishes_what_is_committed() -> None:
    sink = Sink()
    job = Job(sink)
    job.normally = False
    job.publisher.prepared(0)
    job.committed = 0
    job.end()
    assert sink.done == ["publish"]


def test_small_files_are_merged_when_they_are_due() -> None:
    sink = Sink()
    sink.due = 101
    job = Job(sink)
    job.publisher.prepared(0)
    job.committed = 0
    job.publisher.await_published()
    assert "roll" not in sink.done
    sink.due = 100
    job.publisher.prepared(1)
    job.committed = 1
    job.end()
    first, *others, last = sink.done
    assert (first, sorted(others), last) == ("publish", ["publish", "roll"], "finish")  # it may be due before or after


@pytest.mark.parametrize("what", ["publish", "roll", "finish"])
def test_failure_of_a_sink_fails_the_job(what: str) -> None:
    sink = Sink(fails=what)
    job = Job(sink)
    sink.due = 0 if what == "roll" else None
    job.publisher.prepared(0)
    job.committed = 0
    with pytest.raises(JobError, match=f"cannot {what}"):
        job.end()
    with pytest.raises(JobError, match=f"cannot {what}"):
        job.publisher.await_published()


def test_job_without_file_sinks_waits_for_nothing() -> None:
    job = Job()
    job.publisher.prepared(0)
    job.publisher.await_published()
    job.end()
