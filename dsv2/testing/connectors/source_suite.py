"""The tests that every source with splits passes."""

from __future__ import annotations

import itertools
import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Generic
from unittest import SkipTest

from dsv2.base.clock import SystemClock
from dsv2.base.type_variables import T
from dsv2.environment import ExecutionEnvironment
from dsv2.errors import UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.model.error_policy import ErrorPolicy
from dsv2.runtime.sources.offsets import BEFORE_START, SourceOffset
from dsv2.sources import Source, WatermarkStrategy
from dsv2.testing.clock import ManualClock
from dsv2.testing.connectors.kills import Kill, KilledError
from dsv2.testing.connectors.source_run import SourceRun
from dsv2.testing.connectors.suite import ConnectorTestSuite, Ledger, check_same, fail, failure_of, run_job

_MOST_BATCHES = 300
_MOST_EMPTY = 5
_LARGE = 1000
_BETWEEN_BATCHES = timedelta(hours=1)  # longer than the interval at which sources discover splits
_IDLE_AFTER = timedelta(days=1)
_DRIFT = timedelta(milliseconds=10)


class SourceTestSuite(ConnectorTestSuite, Generic[T]):
    """The tests of a source with splits.

    Attributes:
        splits: The number of splits in which the tests put records.
        record_size: The approximate size of a record in the unit of ``Portion.size``. Default: records are counted.
        keeps_order: Whether the records of a split are read in the order in which they were added.
        new_splits: Whether ``add`` can create a further split while a job runs.
        exactly_once: Whether a job that was killed must read each record once. Otherwise it may repeat some.
    """

    splits: int = 2
    record_size: int = 1
    keeps_order: bool = True
    new_splits: bool = True
    exactly_once: bool = True

    @abstractmethod
    def create_source(self) -> Source[T, Any, Any]:
        """Create a source that reads all that was added. Called for each start of a job, with the same options."""

    @abstractmethod
    def add(self, split: int, texts: Sequence[str]) -> None:
        """Add a record for each text to a split of the system, which is created if it does not exist."""

    def text_of(self, record: T) -> str:
        """Return the text from which a record was added, without the use of fields. Default: ``str``."""
        return str(record)

    def add_undecodable(self, split: int) -> None:
        """Add a value that the source cannot decode. Default: there is none, and its tests are skipped."""
        raise SkipTest("The suite does not override add_undecodable.")

    def create_unreachable_source(self) -> Source[T, Any, Any]:
        """Create a source whose system does not answer, or does not exist. Default: there is none."""
        raise SkipTest("The suite does not override create_unreachable_source.")

    # Positions and recovery

    def test_each_record_is_read_once(self) -> None:
        """All records in the order of their split, in large and in small micro-batches."""
        texts = self._fill()
        for limit in (None, self.record_size):
            with closing(self._start()) as run:
                found = self._rest(run, limit)
            check_same(texts, found, f"In micro-batches with the limit {limit}")
            for split in range(self.splits):
                own = [text for text in texts if text.endswith(f" of split {split}")]
                if (order := [text for text in found if text in own]) != own and self.keeps_order:
                    fail(f"The records of split {split} were added in the order {own}, and read in the order {order}.")

    def test_awkward_texts_are_unchanged(self) -> None:
        """Texts that are easily damaged."""
        self.add(0, self.awkward_texts)
        with closing(self._start()) as run:
            check_same(self.awkward_texts, self._rest(run), "Of the awkward texts")

    def test_positions_are_restored_from_json(self) -> None:
        """The positions of splits in a checkpoint."""
        self._fill()
        with closing(self._start()) as run:
            serializer = run.source.split_serializer
            for _ in run.rest(self.record_size):
                for split in run.driver.positions:
                    stored = json.dumps(serializer.to_json(split))
                    if (restored := serializer.from_json(json.loads(stored))) != split:
                        fail(f"{split} is stored as {stored}, and restored as {restored}.")

    def test_repeated_micro_batch_has_the_same_records(self) -> None:
        """The same range, although records were added since it was planned."""
        self._fill()
        with closing(self._start()) as run:
            for number in range(2):
                run.plan(3 * self.record_size)
                planned = self._texts(run.repeated())
                self._fill(100 * (number + 1))
                if (repeated := self._texts(self._start(run.offset).repeated())) != planned:
                    fail(f"Micro-batch {number} had the records {planned}, and {repeated} when it was repeated.")

    def test_restarted_source_continues(self) -> None:
        """A restart within each micro-batch."""
        self._check_restarts("After a restart behind each micro-batch", 2)

    def test_restarted_source_continues_with_another_parallelism(self) -> None:
        """Restarts with more and fewer readers."""
        self._check_restarts("After restarts with another parallelism", 2, 3, 1)

    def test_killed_job_reads_each_record_once(self) -> None:
        """A kill at each call of the enumerator and the readers, and a restart from the checkpoint."""
        source, texts, ledger = self.create_source(), list[str](), Ledger()
        with TemporaryDirectory() as folder:
            for number in itertools.count():
                if source.bounded:  # a new job, as this one has ended
                    texts, ledger = texts or self._fill(count=2), Ledger()
                else:
                    texts += self._fill(10 * number, count=2)
                batches = [self.record_size if source.bounded else _LARGE]
                kill, checkpoint = Kill(number), f"{folder}/{number if source.bounded else 'continued'}"
                with suppress(KilledError), kill.of_source(type(source)):
                    self._run_job(ledger, checkpoint, batches=batches)
                self._run_job(ledger, checkpoint, batches=batches, checks=not kill.at)
                check_same(texts, self._texts(ledger.records), f"After {kill}", once=self.exactly_once)
                if not kill.at:
                    break

    # Splits, idleness and alignment

    def test_new_records_and_splits_are_read(self) -> None:
        """Records and splits that are added while the job runs, and before a restart."""
        self._skip_if_bounded()
        self._fill()
        with closing(self._start()) as run:
            self._rest(run)
            check_same(self._fill(100), self._rest(run), "Of the records that were added while the job runs")
            if not self.new_splits:
                return
            self.add(self.splits, ["new"])
            with closing(self._start(run.offset)) as restarted:
                check_same(["new"], self._rest(restarted), "Of a split that was created before a restart")
            if getattr(run.source, "discovery_interval", None) is not None:
                check_same(["new"], self._rest(run), "Of a split that was created while the job runs")

    def test_nothing_is_left_at_the_end(self) -> None:
        """No lag, and no further micro-batches."""
        self._fill()
        with closing(self._start()) as run:
            self._rest(run)
            if behind := {split.split: split.lag for split in run.driver.splits() if split.lag}:
                fail(f"When all records have been read, the lag of splits is {behind}, and not 0.")

    def test_split_without_new_records_becomes_idle(self) -> None:
        """Idleness, and its end."""
        self._skip_if_bounded()
        self._fill()
        with closing(self._start(watermarks=self._strategy(_IDLE_AFTER))) as run:
            self._rest(run)
            run.clock.wait(_IDLE_AFTER)
            run.plan()
            splits = [split for reader in run.offset["readers"] for split in reader["splits"]]
            if active := [split["at"] for split in splits if not split["idle"]]:
                fail(f"Splits that had nothing to read for {_IDLE_AFTER} are not idle: {active}.")
            check_same(self._fill(100), self._rest(run), "Of the records that were added to idle splits")

    def test_aligned_split_waits_for_the_slowest(self) -> None:
        """Watermark alignment of two splits of one reader."""
        slow, ahead, ledger = [f"{n} slow" for n in range(4)], [f"{1000 * n} ahead" for n in range(1, 5)], Ledger()
        self.add(0, slow)
        self.add(self.splits - 1, ahead)
        aligned = self._strategy().with_watermark_alignment("all", _DRIFT, timedelta(milliseconds=1))
        run_job(lambda env: self._add_job(env, ledger, watermarks=aligned), parallelism=1, batches=[self.record_size])
        read = [self._texts(batch) for _, batch in sorted(ledger.batches.items())]
        known = next((number for number, texts in enumerate(read) if ahead[0] in texts), len(read))
        later = list(itertools.chain(*read[known + 1 :]))  # when the event time of both is known
        early = [text for text in ahead if text in later and {*slow} & {*later[later.index(text) :]}]
        if early and self.splits > 1:
            fail(f"Although splits are aligned, {early} was read before the slowest split was: {read}.")
        check_same(slow, [text for texts in read for text in texts if text in slow], "Of the slowest of aligned splits")

    # Errors

    def test_undecodable_value_is_named_and_can_be_skipped(self) -> None:
        """The position in the error, and ``skip_records``."""
        texts, ledger = self._fill_with_undecodable(), Ledger()
        with TemporaryDirectory() as checkpoint:
            error = failure_of(lambda: self._run_job(ledger, checkpoint), "an undecodable value")
            if not isinstance(error, UserFunctionError) or error.position is None:
                fail(f"The error does not name the position of the value. Does read yield a SplitBatch? {error}")
            self._run_job(ledger, checkpoint, skip=[(error.position.split, error.position.offset)])
        check_same(texts, self._texts(ledger.records), f"After the value at {error.position} was skipped")

    def test_error_policy_applies_to_undecodable_values(self) -> None:
        """Dead letters, whose positions do not depend on micro-batches."""
        texts, places = self._fill_with_undecodable(), list[Any]()
        for size in (self.record_size, _LARGE):
            ledger, letters = Ledger(), Ledger()
            run_job(partial(self._add_job, ledger=ledger, letters=letters), batches=[size])
            check_same(texts, self._texts(ledger.records), f"Behind an error policy, in micro-batches of {size}")
            places.append([letter.position for letter in letters.records])
        if len(places[0]) != 1 or places[0] != places[1]:
            fail(f"The dead letters of one undecodable value depend on the size of micro-batches: {places}.")

    def test_unreachable_system_fails_the_job(self) -> None:
        """An error instead of no records."""
        failure_of(self._run_unreachable, "a system that does not answer")

    # Parts of tests

    def _connector(self) -> object:
        return self.create_source()

    def _build(self, env: ExecutionEnvironment) -> None:
        self._fill()
        self._add_job(env, Ledger())

    def _failures(self) -> Iterable[tuple[str, Callable[[], object]]]:
        return ("a system that does not answer", self._run_unreachable), ("an undecodable value", self._run_undecodable)

    def _run_unreachable(self) -> None:
        source = self.create_unreachable_source()
        run_job(partial(self._add_job, ledger=Ledger(), source=source), clock=SystemClock())  # it waits for a while

    def _run_undecodable(self) -> None:
        self.add_undecodable(0)
        self._run_job(Ledger())

    def _fill(self, first: int = 0, count: int = 4) -> list[str]:
        """Add new records to all splits, and return their texts."""
        texts = [[f"{first + n} of split {split}" for n in range(count)] for split in range(self.splits)]
        for split, own in enumerate(texts):
            self.add(split, own)
        return list(itertools.chain(*texts))

    def _fill_with_undecodable(self) -> list[str]:
        texts = self._fill()
        self.add_undecodable(0)
        return texts + self._fill(100)

    def _skip_if_bounded(self) -> None:
        if self.create_source().bounded:
            raise SkipTest("The source is bounded.")

    def _start(self, offset: SourceOffset = BEFORE_START, parallelism: int = 2, **options: Any) -> _Run:
        return _Run(self.create_source(), offset, parallelism, ManualClock(), **options)

    def _rest(self, run: _Run, limit: int | None = None) -> list[str]:
        return self._texts(run.rest(limit))

    def _texts(self, records: Iterable[T]) -> list[str]:
        return list(map(self.text_of, records))

    def _check_restarts(self, when: str, *parallelisms: int) -> None:
        texts, found, offset, without_records = self._fill(), list[str](), BEFORE_START, 0
        for parallelism in itertools.cycle(parallelisms):
            with closing(self._start(offset, parallelism)) as run:
                is_planned, offset = run.plan(self.record_size), run.offset
            read = self._texts(self._start(offset, parallelism).repeated()) if is_planned else []  # after the restart
            found += read
            without_records = 0 if read else without_records + 1
            if without_records > _MOST_EMPTY or len(found) > 2 * len(texts):
                break
        check_same(texts, found, when)

    def _add_job(
        self, env: ExecutionEnvironment, ledger: Ledger, letters: Ledger | None = None, **options: Any
    ) -> None:
        source = options.pop("source", None) or self.create_source()
        stream = env.from_source(source, **options).with_uid("source")
        stream.to_sink(ledger).with_uid("ledger")
        if letters is not None:
            stream.with_error_policy(ErrorPolicy().dead_letter())
            stream.dead_letters(object).to_sink(letters).with_uid("letters")

    def _run_job(self, ledger: Ledger, checkpoint: str = "", **options: Any) -> None:
        run_job(lambda env: self._add_job(env, ledger), checkpoint, **options)

    def _strategy(self, idle_after: timedelta = timedelta(0)) -> WatermarkStrategy[T]:
        suite = object.__new__(type(self))  # without its fields, which perhaps cannot be pickled
        builder = EventTimeExtension.new_watermark_generator_builder(suite._time_of).with_idleness(idle_after)
        return builder.build_as_watermark_strategy()

    def _time_of(self, record: T) -> int:
        return int(self.text_of(record).partition(" ")[0])


class _Run(SourceRun):
    """A run of the source. An hour passes before each micro-batch."""

    def plan(self, limit: int | None = None) -> bool:
        self.clock.wait(_BETWEEN_BATCHES)
        return self.plan_next(limit)

    def rest(self, limit: int | None = None) -> Iterator[Any]:
        """Read all further records."""
        for _ in range(_MOST_BATCHES):
            if self.plan(limit):
                yield from self.repeated()
            elif self.driver.ended or not self.source.bounded:
                return
        fail(f"After {_MOST_BATCHES} micro-batches the source plans further ones, although nothing was added.")
