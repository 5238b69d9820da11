"""``watch``: what Ctrl-C and SIGTERM do to a job, and what the user is told."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from datetime import timedelta
from signal import SIG_DFL, SIGINT, SIGTERM, getsignal, raise_signal, signal

import pytest

from dsv2 import ExecutionEnvironment, JobError, JobStatus
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from dsv2.views.terminal import signals_noted, watch
from tests.durations import LONG
from tests.fake_jobs import NOTHING, FakeJob, hot_topics_plan, hot_topics_progress

PLAN = hot_topics_plan()


class Signalled(FakeJob):
    """A job during which signals arrive, one with each look at it. ``ends_at``: The stop that it obeys."""

    def __init__(self, *signals: int, ends_at: int = 1) -> None:
        super().__init__(PLAN, hot_topics_progress)
        self._signals = iter(signals)
        self._ends_at = ends_at
        self._looks = 0
        self._stopped = threading.Event()

    def await_termination(self, timeout: timedelta | None = None) -> bool:
        if (number := next(self._signals, None)) is not None:
            raise_signal(number)
        elif self._looks and self._ends_at:
            self._stopped.wait(LONG)
        self._looks += 1
        return super().await_termination(timeout)

    def stop(self, timeout: timedelta | None = None) -> None:
        self.stops.append(timeout)
        if len(self.stops) == self._ends_at:
            self.status = JobStatus.STOPPED
            self._stopped.set()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = getsignal(SIGINT), getsignal(SIGTERM)
    yield
    assert (getsignal(SIGINT), getsignal(SIGTERM)) == before


def test_ctrl_c_stops_after_the_micro_batch_and_says_how_to_continue() -> None:
    said = io.StringIO()
    job = Signalled(SIGINT)
    watch(job, stream=said, continue_with="./run hot-topics --checkpoint c")
    assert job.stops == [None]
    assert said.getvalue() == "Stopped after micro-batch 8. To continue:\n  ./run hot-topics --checkpoint c\n"


@pytest.mark.parametrize("signals", [(SIGINT, SIGINT), (SIGTERM, SIGINT)])
def test_second_signal_cancels_the_micro_batch(signals: tuple[int, ...]) -> None:
    job = Signalled(*signals, ends_at=2)
    watch(job, stream=io.StringIO())
    assert job.stops == [None, timedelta(0)]


def test_third_ctrl_c_ends_the_program() -> None:
    job = Signalled(SIGINT, SIGINT, SIGINT, ends_at=0)
    with pytest.raises(KeyboardInterrupt):
        watch(job, stream=io.StringIO())
    assert job.status is JobStatus.RUNNING


def test_signal_before_the_job_stops_it() -> None:
    job = Signalled()
    with signals_noted() as noted:
        raise_signal(SIGTERM)
        assert (noted.interrupts, noted.terminations) == (0, 1)
        watch(job, signals=noted, stream=io.StringIO())
    assert job.stops == [None]


def test_job_that_ends_by_itself_says_nothing() -> None:
    said = io.StringIO()
    job = FakeJob(PLAN)
    job.status = JobStatus.FINISHED
    assert watch(job, stream=said).job_name == "hot topics"
    assert said.getvalue() == ""


def test_stopped_before_the_first_micro_batch() -> None:
    said = io.StringIO()
    job = Signalled(SIGINT)
    job._progress = lambda: NOTHING
    watch(job, stream=said)
    assert said.getvalue() == "Stopped before its first micro-batch.\n"


def test_error_of_the_job_is_raised() -> None:
    job = FakeJob(PLAN)
    job.failure = JobError("it broke")
    with pytest.raises(JobError, match="it broke"):
        watch(job, stream=io.StringIO())


def test_error_of_stopping_is_raised() -> None:
    class Stubborn(Signalled):
        def stop(self, timeout: timedelta | None = None) -> None:
            raise JobError("it was cancelled but has not ended")

    with pytest.raises(JobError, match="has not ended"):
        watch(Stubborn(SIGINT, ends_at=0), stream=io.StringIO())


def test_in_another_thread_signals_are_left_alone() -> None:
    job = FakeJob(PLAN)
    job.status = JobStatus.FINISHED
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(watch(job, stream=io.StringIO()).job_name))
    thread.start()
    thread.join()
    assert results == ["hot topics"]


def test_handlers_not_set_by_python_are_restored_as_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    before = getsignal(SIGINT), signal(SIGTERM, SIG_DFL)
    monkeypatch.setattr("dsv2.views.terminal.signals.signal", lambda number, handler: signal(number, handler) and None)
    try:
        with signals_noted():
            pass
        assert getsignal(SIGTERM) is SIG_DFL
    finally:
        signal(SIGINT, before[0])
        signal(SIGTERM, before[1])


def test_ctrl_c_stops_a_real_job() -> None:
    env = ExecutionEnvironment.get_instance("local")
    sink = CollectSink[int]()
    env.from_source(DataGeneratorSource(abs, records_per_second=1_000)).to_sink(sink)
    said = io.StringIO()
    job = env.execute_async("endless")
    with signals_noted() as noted:
        while not sink.results:
            pass
        raise_signal(SIGINT)
        watch(job, signals=noted, stream=said)
    assert job.status is JobStatus.STOPPED
    assert said.getvalue() == f"Stopped after micro-batch {job.progress.batch_id}.\n"
