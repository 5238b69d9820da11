"""The tests that every sink passes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Any, Generic
from unittest import SkipTest
from uuid import uuid4

import cloudpickle

from dsv2.base.clock import SystemClock
from dsv2.base.type_variables import T
from dsv2.environment import ExecutionEnvironment
from dsv2.errors import Dsv2Error
from dsv2.local.sinks import LocalFileSink
from dsv2.model.error_policy import ErrorPolicy
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import DriverSink, FileSink, ParallelSink, Sink, SinkBatch, SinkInfo, SinkRunInfo
from dsv2.testing.connectors.kills import Kill, KilledError
from dsv2.testing.connectors.suite import ConnectorTestSuite, Ledger, check_same, fail, failure_of, run_job
from dsv2.testing.interruptions import Stop
from dsv2.testing.source import TestSource

_MOST_RUNS = 100
_SECONDS = 0.2  # that an attempt may wait for another one, in the same transaction for example


class SinkTestSuite(ConnectorTestSuite, Generic[T]):
    """The tests of a sink.

    Attributes:
        exactly_once: Whether readers must see each record once. None: as the attribute ``exactly_once`` of the sink.
    """

    exactly_once: bool | None = None

    @abstractmethod
    def create_sink(self) -> Sink[T]:
        """Create a sink. Called for each start of a job, with the same options."""

    @abstractmethod
    def read(self) -> Iterable[str]:
        """Return the text of each record that readers of the system see now, in any order."""

    def record_of(self, text: str) -> T:
        """Return the record that the sink must write for a text. Default: the text itself."""
        return text  # type: ignore[return-value]

    def create_unwritable_record(self) -> T:
        """Return a record that the sink refuses. Default: there is none, and its tests are skipped."""
        raise SkipTest("The suite does not override create_unwritable_record.")

    def create_unreachable_sink(self) -> Sink[T]:
        """Create a sink whose system does not answer, or does not exist. Default: there is none."""
        raise SkipTest("The suite does not override create_unreachable_sink.")

    def test_awkward_texts_are_unchanged(self) -> None:
        """Texts that are easily damaged."""
        run_job(lambda env: self._add_job(env, map(self.record_of, self.awkward_texts)), checks=True)
        self._check(self.awkward_texts, "Of the awkward texts")

    def test_killed_job_writes_each_record(self) -> None:
        """A kill before, within and after each write, and a restart from the checkpoint."""
        texts = [f"{number} of a killed job" for number in range(2 * _MOST_RUNS)]
        items: list[T | Stop] = list(map(self.record_of, texts))
        for place in range(len(items), 0, -2):
            items.insert(place, Stop())
        sink = type(self.create_sink())
        writer = LocalFileSink if issubclass(sink, FileSink) else sink
        with TemporaryDirectory() as checkpoint:
            for number in range(_MOST_RUNS):  # each continues behind the next Stop
                kill = Kill(number)
                with suppress(KilledError), kill.of_calls(writer, "begin", "write"):
                    run_job(lambda env: self._add_job(env, items), checkpoint)
                if kill.at:
                    run_job(lambda env: self._add_job(env, items), checkpoint)
                found = list(self.read())
                done = max([2 * number + 2, *(texts.index(text) // 2 * 2 + 2 for text in found if text in texts)])
                check_same(texts[:done], found, f"After {kill}", once=self._once)
                if not kill.at:
                    break

    # Micro-batches

    def test_repeated_micro_batch_is_written_once(self) -> None:
        """A repetition after a restart, and one that comes too late."""
        first = self._start("first")
        first.write(0, ["a"], ["b"])
        first.write(1, ["c"], ["d"] if first.on_driver else [])
        again = self._start("again", 1, "first")
        again.write(1, ["c"], ["d"])
        again.write(2, ["e"])
        if not again.on_driver:
            again.write(1, ["c"], ["d"])  # by a very late attempt
        self._check("abcde", "When a micro-batch was written again")

    def test_interrupted_micro_batch_is_completed(self) -> None:
        """A write that ends after its first records."""

        def killed() -> None:
            raise KilledError

        first = self._start("first")
        first.write(0, ["a"], ["b"])
        with suppress(KilledError):
            first.write(1, ["c", "d"], ["e"], between=killed)
        self._start("again", 1, "first").write(1, ["c", "d"], ["e"])
        self._check("abcde", "When a micro-batch was interrupted within a write, and repeated")

    def test_two_attempts_at_once(self) -> None:
        """A second attempt while the first still writes."""
        first, second = self._start("first"), self._start("first")
        with ThreadPoolExecutor(1) as pool, suppress(Exception):  # one of the two may fail
            first.write(0, ["a", "b"], between=lambda: wait([pool.submit(second.write, 0, ["a", "b"])], _SECONDS))
        first.write(0, ["a", "b"])
        self._check("ab", "When two attempts wrote a micro-batch at once")

    def test_other_jobs_and_sinks_are_no_repetition(self) -> None:
        """Jobs and sinks that number their micro-batches alike."""
        for text, job, uid in (("a", "one", "sink"), ("b", "two", "sink"), ("c", "one", "other sink")):
            self._start("first", job=job, uid=uid).write(0, [text])
        self._check("abc", "When two jobs, and two sinks of a job, write to the same system")

    def test_empty_micro_batch(self) -> None:
        """Micro-batches without records."""
        writer = self._start("first")
        for number, texts in enumerate(([], ["a"], [])):
            writer.write(number, texts)
        self._check("a", "Between empty micro-batches")

    def test_other_parallelism(self) -> None:
        """Fewer subtasks after a restart."""
        self._start("first", parallelism=3).write(0, ["a"], ["b"], ["c"])
        self._start("second", 1, parallelism=2).write(1, ["d"], ["e"])
        self._check("abcde", "After restarts with another parallelism")

    def test_other_parallelism_within_a_micro_batch(self) -> None:
        """Fewer subtasks for the rest of a micro-batch: refused, or written once."""
        if self._start("first", parallelism=3).on_driver:
            raise SkipTest("A sink on the driver has no subtasks.")
        self._start("first", parallelism=3).write(0, [], [], ["c"])
        try:
            self._start("second", 0, "first", parallelism=2).write(0, ["a", "c"], ["b"])
        except Dsv2Error:  # refused
            self._start("third", 0, "first", "second", parallelism=3).write(0, ["a"], ["b"], ["c"])
        self._check("abc", "When the parallelism changed within a micro-batch")

    def test_records_behind_an_older_checkpoint_are_not_lost(self) -> None:
        """Micro-batches of another history: refused, or written."""
        later = self._start("later")
        for number, text in enumerate("abc"):
            later.write(number, [text])
        with suppress(Dsv2Error):  # refused
            self._start("restored", 1).write(1, ["other"])
            check_same(["other"], {"other"} & {*self.read()}, "When an older checkpoint was restored")

    # Errors

    def test_unwritable_record_fails_the_job(self) -> None:
        """An error instead of a lost record."""
        failure_of(self._run_unwritable, "an unwritable record")

    def test_error_policy_applies_to_unwritable_records(self) -> None:
        """All other records, and a dead letter."""
        letters = Ledger()
        self._run_unwritable(letters)
        self._check(["before", "after"], "Behind an error policy")
        if len(letters.records) != 1:
            fail(f"An unwritable record has {len(letters.records)} dead letters instead of one.")

    def test_unreachable_system_fails_the_job(self) -> None:
        """An error instead of lost records."""
        failure_of(self._run_unreachable, "a system that does not answer")

    # Parts of tests

    def _connector(self) -> object:
        return self.create_sink()

    def _build(self, env: ExecutionEnvironment) -> None:
        self._add_job(env, [self.record_of("a")])

    def _failures(self) -> Iterable[tuple[str, Callable[[], object]]]:
        return ("an unwritable record", self._run_unwritable), ("a system that does not answer", self._run_unreachable)

    def _run_unwritable(self, letters: Ledger | None = None) -> None:
        records = [self.record_of("before"), self.create_unwritable_record(), self.record_of("after")]
        run_job(lambda env: self._add_job(env, records, letters=letters))

    def _run_unreachable(self) -> None:
        sink = self.create_unreachable_sink()
        run_job(lambda env: self._add_job(env, [self.record_of("a")], sink=sink), clock=SystemClock())

    def _add_job(self, env: ExecutionEnvironment, items: Iterable[T | Stop], **options: Any) -> None:
        records = env.from_source(TestSource(items)).with_uid("source")
        written = records.to_sink(options.get("sink") or self.create_sink()).with_uid("sink")
        if (letters := options.get("letters")) is not None:
            written.with_error_policy(ErrorPolicy().dead_letter())
            written.dead_letters(object).to_sink(letters).with_uid("letters")

    @cached_property
    def _test(self) -> str:
        return uuid4().hex

    @property
    def _once(self) -> bool:
        return self.create_sink().exactly_once if self.exactly_once is None else self.exactly_once

    def _check(self, texts: Iterable[str], when: str) -> None:
        check_same(texts, self.read(), when, once=self._once)

    def _start(
        self, run: str, first: int = 0, *earlier: str, parallelism: int = 2, job: str = "job", uid: str = "sink"
    ) -> _Writer[T]:
        info = SinkInfo(f"{job} of {self._test}", uid, parallelism, SinkRunInfo(run, first, earlier))
        return _Writer(self.create_sink(), self.record_of, info)


class _Writer(Generic[T]):
    """Writes micro-batches of one run as a runtime does."""

    def __init__(self, sink: Sink[T], record_of: Callable[[str], T], info: SinkInfo) -> None:
        if not isinstance(sink, DriverSink | ParallelSink):
            raise SkipTest("The runtime writes the sink, in jobs only.")
        self._sink = sink
        self._record_of = record_of
        self._info = info
        self.on_driver = isinstance(sink, DriverSink)
        sink.begin(info, info.run.first_batch)

    def write(self, batch_id: int, *texts: Sequence[str], between: Callable[[], object] = lambda: None) -> None:
        """Write a micro-batch, with the texts of each subtask. ``between`` is called after the first records of one."""
        batches = [[RecordBatch([self._record_of(text)]) for text in own] for own in texts]
        if isinstance(self._sink, DriverSink):
            self._sink.write(self._info, [batch for own in batches for batch in own], batch_id)
            return
        for subtask, own in enumerate(batches):
            if own:
                sink = cloudpickle.loads(cloudpickle.dumps(self._sink))  # as for a task
                sink.write(SinkBatch(self._info, subtask, batch_id, _with_a_call(own, between)))


def _with_a_call(batches: Iterable[Any], between: Callable[[], object]) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        if number == 1:
            between()
        yield batch
