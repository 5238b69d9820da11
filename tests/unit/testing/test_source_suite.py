"""Sources that pass the suite for sources, and for each of its tests a source that fails it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

import pytest

from dsv2.model import RecordBatch
from dsv2.sources import DataclassSerializer, Portion, SplitBatch, SplitSource
from dsv2.testing.connectors import SourceTestSuite

PASSWORD = "s3cret/pass"
LOGS: dict[str, dict[int, list[Any]]] = {}
"""The logs of each system: values by partition."""


@dataclass(frozen=True)
class LogSplit:
    """A partition of a log after its first ``position`` values, up to ``end``."""

    partition: int
    position: int = 0
    end: int | None = None

    @property
    def split_id(self) -> str:
        return str(self.partition)


def decoded(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value} is no text")
    return value


class LogSource(SplitSource[str, LogSplit]):
    """Reads the log of a system in this process."""

    split_serializer = DataclassSerializer(LogSplit)
    discovery_interval = timedelta(minutes=5)

    def __init__(self, system: str, password: str = PASSWORD, *, bounded: bool = False) -> None:
        self.system, self.password, self._bounded = system, password, bounded
        self.ends: dict[int, int] = {}

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def log(self) -> dict[int, list[Any]]:
        if self.system not in LOGS:
            raise ConnectionError(f"{self.system} does not answer.")
        return LOGS[self.system]

    def discover(self) -> list[LogSplit]:
        return [LogSplit(number, 0, len(self.log[number]) if self.bounded else None) for number in sorted(self.log)]

    def refresh(self) -> None:
        self.ends = {number: len(values) for number, values in self.log.items()}

    def lag(self, split: LogSplit, /) -> int:
        return self.ends[split.partition] - split.position

    def advance(self, split: LogSplit, limit: int | None, /) -> Portion[LogSplit] | None:
        end = self.ends[split.partition] if split.end is None else split.end
        stop = end if limit is None else min(end, split.position + limit)
        if stop == split.position and split.end is None:
            return None
        return Portion(replace(split, position=stop), stop - split.position, stop == split.end)

    def read(self, start: LogSplit, stop: LogSplit, /) -> Iterator[RecordBatch[str]]:
        for first in range(start.position, stop.position, 2):
            last = min(first + 2, stop.position)
            yield SplitBatch(self.log[start.partition][first:last], decoded, offsets=partial(range, first, last))


class TestUnboundedLog(SourceTestSuite[str]):
    source: type[LogSource] = LogSource
    secrets = (PASSWORD,)
    bounded = False

    def setup_method(self) -> None:
        LOGS["system"] = {}

    def create_source(self) -> LogSource:
        return self.source("system", bounded=self.bounded)

    def add(self, split: int, texts: Sequence[str]) -> None:
        LOGS["system"].setdefault(split, []).extend(texts)

    def add_undecodable(self, split: int) -> None:
        LOGS["system"].setdefault(split, []).append(7)

    def create_unreachable_source(self) -> LogSource:
        return self.source("nowhere")


class TestBoundedLog(TestUnboundedLog):
    bounded = True


class Backwards(LogSource):
    def read(self, start: LogSplit, stop: LogSplit, /) -> Iterator[RecordBatch[str]]:
        yield RecordBatch([value for batch in super().read(start, stop) for value in batch.records][::-1])


class SkipsBetweenPortions(LogSource):
    def advance(self, split: LogSplit, limit: int | None, /) -> Portion[LogSplit] | None:
        return super().advance(replace(split, position=split.position + 1) if split.position else split, limit)


class Strips(LogSource):
    def read(self, start: LogSplit, stop: LogSplit, /) -> Iterator[RecordBatch[str]]:
        for batch in super().read(start, stop):
            yield RecordBatch([value.strip() for value in batch.records])


class KeepsItsConnection(LogSource):
    def refresh(self) -> None:
        super().refresh()
        self.connection = threading.Lock()


class EndForgotten(DataclassSerializer[LogSplit]):
    def to_json(self, value: LogSplit, /) -> Any:
        return super().to_json(replace(value, end=None))


class ForgetsTheEnd(LogSource):
    split_serializer = EndForgotten(LogSplit)


class ReadsToTheCurrentEnd(LogSource):
    def read(self, start: LogSplit, stop: LogSplit, /) -> Iterator[RecordBatch[str]]:
        return super().read(start, replace(stop, position=len(self.log[start.partition])))


class SkipsAfterARestart(LogSource):
    restored = False

    def create_discovery(self, ctx: Any, restored: Any, /) -> Any:
        self.restored = restored is not None
        return self

    def advance(self, split: LogSplit, limit: int | None, /) -> Portion[LogSplit] | None:
        skipped = int(self.restored and split.position < self.ends[split.partition])
        self.restored = False
        return super().advance(replace(split, position=split.position + skipped), limit)


class ForgetsASplit(LogSource):
    """When the parallelism has changed."""

    def create_discovery(self, ctx: Any, restored: Any, /) -> Any:
        self.forgets = restored is not None and ctx.parallelism != restored.parallelism
        return self

    def discover(self) -> list[LogSplit]:
        return super().discover()[int(self.forgets) :]


class Acknowledges(LogSource):
    """What it has read, before the micro-batch is complete."""

    def read(self, start: LogSplit, stop: LogSplit, /) -> Iterator[RecordBatch[str]]:
        yield from super().read(start, stop)
        self.log[start.partition][start.position : stop.position] = [""] * (stop.position - start.position)


class PositionForgotten(DataclassSerializer[LogSplit]):
    def to_json(self, value: LogSplit, /) -> Any:
        return super().to_json(replace(value, position=0))


class ForgetsThePosition(LogSource):
    split_serializer = PositionForgotten(LogSplit)


class LooksOnce(LogSource):
    def refresh(self) -> None:
        if not self.ends:
            super().refresh()


class DiscoversOnce(LogSource):
    found: tuple[LogSplit, ...] = ()

    def discover(self) -> list[LogSplit]:
        self.found = self.found or tuple(super().discover())
        return list(self.found)


class NeverRests(LogSource):
    def advance(self, split: LogSplit, limit: int | None, /) -> Portion[LogSplit] | None:
        return super().advance(split, limit) or Portion(replace(split, position=split.position + 1), 1)


class WrongLag(LogSource):
    def lag(self, split: LogSplit, /) -> int:
        return len(self.log[split.partition])


class Heartbeats(LogSource):
    days = 0

    def create_discovery(self, ctx: Any, restored: Any, /) -> Any:
        self.clock = ctx.clock
        return self

    def advance(self, split: LogSplit, limit: int | None, /) -> Portion[LogSplit] | None:
        if (days := self.clock.now_ms() // 86_400_000) > self.days:
            self.days = days
            return Portion(split, 1)
        return super().advance(split, limit)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "clock": None}


class OneSplit(LogSource):
    """Reads the partitions in turns, as a single split."""

    @property
    def values(self) -> list[Any]:
        return [value for turn in zip_longest(*self.log.values()) for value in turn if value is not None]

    def discover(self) -> list[LogSplit]:
        return [LogSplit(0, 0, len(self.values) if self.bounded else None)]

    def refresh(self) -> None:
        self.ends = {0: len(self.values)}

    def read(self, start: LogSplit, stop: LogSplit, /) -> Iterator[RecordBatch[str]]:
        yield RecordBatch(self.values[start.position : stop.position])


class DecodesItself(LogSource):
    def read(self, start: LogSplit, stop: LogSplit, /) -> Iterator[RecordBatch[str]]:
        yield RecordBatch([decoded(value) for value in self.log[start.partition][start.position : stop.position]])


class CountsFromThePortion(LogSource):
    def read(self, start: LogSplit, stop: LogSplit, /) -> Iterator[RecordBatch[str]]:
        values = self.log[start.partition][start.position : stop.position]
        yield SplitBatch(values, decoded, offsets=partial(range, len(values)))


class HidesErrors(LogSource):
    @property
    def log(self) -> dict[int, list[Any]]:
        return LOGS.get(self.system, {})


class ShowsPassword(LogSource):
    def __repr__(self) -> str:
        return f"LogSource({self.system!r}, {self.password!r})"


class ErrorShowsPassword(LogSource):
    @property
    def log(self) -> dict[int, list[Any]]:
        if self.system not in LOGS:
            raise ConnectionError(f"No answer from log://user:{quote(self.password, safe='')}@{self.system}")
        return LOGS[self.system]


class LogsPassword(LogSource):
    def refresh(self) -> None:
        logging.getLogger("log").info("Refreshing with %s", self.password)
        super().refresh()


class PositionWithPassword(LogSource):
    def describe_position(self, split: LogSplit, /) -> str:
        return f"{self.password}@{split.position}"


MISTAKES = [
    ("test_each_record_is_read_once", Backwards, "The records of split 0 were added in the order .*, and read in"),
    ("test_each_record_is_read_once", NeverRests, "After 300 micro-batches the source plans further ones"),
    ("test_each_record_is_read_once", SkipsBetweenPortions, "the limit 1, records are 2 missing: '3 of split 0'"),
    ("test_awkward_texts_are_unchanged", Strips, "Of the awkward texts, records are .* missing: .*' padded '"),
    ("test_each_record_is_read_once", KeepsItsConnection, "cannot pickle '_thread.lock' object"),
    ("test_positions_are_restored_from_json", ForgetsTheEnd, r"end=4\) is stored as .*, and restored as .*end=None"),
    ("test_repeated_micro_batch_has_the_same_records", ReadsToTheCurrentEnd, "Micro-batch 0 had the records .*, and"),
    (
        "test_restarted_source_continues",
        SkipsAfterARestart,
        "After a restart behind each micro-batch, records are .* miss",
    ),
    ("test_restarted_source_continues_with_another_parallelism", ForgetsASplit, "3 missing: '1 of split 0'"),
    (
        "test_killed_job_reads_each_record_once",
        Acknowledges,
        "After a kill at step 20, before read, records are 2 missing: '200",
    ),
    ("test_restarted_source_continues", ForgetsThePosition, "After a restart behind each .* are 8 missing"),
    (
        "test_new_records_and_splits_are_read",
        LooksOnce,
        "added while the job runs, records are 8 missing: '100",
    ),
    (
        "test_new_records_and_splits_are_read",
        DiscoversOnce,
        "a split that was created while .* 1 missing: 'new'",
    ),
    ("test_nothing_is_left_at_the_end", NeverRests, "After 300 micro-batches the source plans further ones"),
    ("test_nothing_is_left_at_the_end", WrongLag, r"the lag of splits is {'0': 4, '1': 4}"),
    ("test_split_without_new_records_becomes_idle", Heartbeats, "nothing to read for 1 day, 0:00:00 are not idle: "),
    ("test_aligned_split_waits_for_the_slowest", OneSplit, "'2000 ahead', .* was read before the slowest split"),
    ("test_undecodable_value_is_named_and_can_be_skipped", DecodesItself, "does not name the position of the value"),
    ("test_error_policy_applies_to_undecodable_values", CountsFromThePortion, "depend on the size of micro-batches"),
    ("test_unreachable_system_fails_the_job", HidesErrors, "must fail because of a system that does not answer"),
    ("test_secrets_are_hidden", ShowsPassword, r"repr\(\) shows the secret"),
    ("test_secrets_are_hidden", ErrorShowsPassword, "The error of a system that does not answer shows the secret"),
    ("test_secrets_are_hidden", LogsPassword, "The log of log shows the secret"),
    ("test_secrets_are_hidden", PositionWithPassword, "The file .* of the checkpoint shows the secret"),
]


@pytest.mark.parametrize(("test", "source", "mistake"), MISTAKES)
def test_mistake_is_found(test: str, source: type[LogSource], mistake: str) -> None:
    bounded = source in (ForgetsTheEnd, OneSplit)
    suite = TestBoundedLog() if bounded else TestUnboundedLog()
    suite.source = source
    suite.setup_method()
    with pytest.raises((AssertionError, TypeError), match=mistake):
        getattr(suite, test)()


def test_each_test_of_the_suite_can_fail() -> None:
    assert {name for name in dir(SourceTestSuite) if name.startswith("test_")} == {test for test, *_ in MISTAKES}
