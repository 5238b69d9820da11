"""A local job lets sources wait for data that can, and asks the others all the time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from dsv2 import ExecutionEnvironment, JobHandle
from dsv2.local import LocalRuntime
from dsv2.sinks import ForeachBatchSink
from tests.durations import LONG
from tests.spans import Item, Span, Spans


class Calls:
    """The calls of a source, in order."""

    def __init__(self) -> None:
        self._calls: list[str] = []
        self._changed = threading.Condition()

    def __reduce__(self) -> tuple[type[Calls], tuple[()]]:
        return Calls, ()  # only checked, as the job runs in this process

    def add(self, call: str) -> None:
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()

    def first(self, number: int) -> list[str]:
        """Await that many calls."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._calls) >= number, LONG)
            return self._calls[:number]


class Waiting(Spans):
    """A source that can wait. ``answer``: What ``wait`` returns."""

    def __init__(self, calls: Calls, answer: bool) -> None:
        super().__init__({"a": 0}, bounded=False)
        self.calls = calls
        self.answer = answer

    def refresh(self) -> None:
        self.calls.add("refresh")

    def wait(self, splits: Sequence[Span], timeout: timedelta, /) -> bool:
        assert splits == [Span("a", 0, 0)]
        self.calls.add("wait")
        return self.answer


@contextmanager
def running(*sources: Spans, sink: ForeachBatchSink[Item] | None = None) -> Iterator[JobHandle]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
    for number, source in enumerate(sources):
        items = env.from_source(source).with_uid(f"in-{number}")
        items.to_sink(sink or ForeachBatchSink(lambda records, batch_id: None)).with_uid(f"out-{number}")
    job = env.execute_async("waiting")
    try:
        yield job
    finally:
        job.stop(timeout=timedelta(seconds=LONG))


def test_idle_source_waits_instead_of_being_asked() -> None:
    calls = Calls()
    with running(Waiting(calls, answer=False)):
        found = calls.first(200)
    assert ["wait", "wait"] in [found[number : number + 2] for number in range(len(found))]


def test_source_that_has_woken_the_job_is_asked_at_once_but_not_all_the_time() -> None:
    calls = Calls()
    with running(Waiting(calls, answer=True)):
        found = calls.first(40)
    first = found.index("wait")
    assert found[first:] == (["wait", "refresh", "refresh"] * len(found))[: len(found) - first]


def test_source_that_cannot_wait_is_asked() -> None:
    calls = Calls()
    with running(Waiting(calls, answer=False), Spans({"b": 0}, bounded=False)):
        found = calls.first(100)
    first = found.index("wait")
    assert found[first:] == (["wait", "refresh"] * len(found))[: len(found) - first]


def test_records_of_a_source_that_waits_arrive() -> None:
    read = threading.Event()

    class Later(Waiting):
        def wait(self, splits: Sequence[Span], timeout: timedelta, /) -> bool:
            self.ends["a"] = 3
            return splits[0].position < 3

    def note(records: list[Item], batch_id: int) -> None:
        read.set()

    with running(Later(Calls(), answer=True), sink=ForeachBatchSink(note)):
        assert read.wait(LONG)
