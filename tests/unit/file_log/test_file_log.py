"""The folder of a file sink is exactly-once for all readers, although its writer is interrupted after any step."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from dsv2.base.folders import Folder
from dsv2.errors import ConfigurationError, CorruptDataError, JobError
from dsv2.file_log import LogState, Merged, MergeGroup, Rolling, SinkFolder, parts_between, read_log
from dsv2.file_log.cleanup import clean
from dsv2.file_log.names import DATA, LOG, REPLACING, is_hidden, partition_folder
from dsv2.testing import ManualClock

BATCHES = 5
DAYS = ("a", "b")
NO_ROLLING = None
BY_SIZE = Rolling(interval_ms=10**9, target_bytes=150)
BY_TIME = Rolling(interval_ms=2_000, target_bytes=10**9)


class CrashError(Exception):
    pass


class MemoryFolder(Folder):
    """Files in memory. Fails before the operation ``crash_at``; ``remove`` then has deleted a part."""

    def __init__(self, files: dict[str, bytes], crash_at: int | None = None) -> None:
        super().__init__("memory")
        self.files = files
        self.crash_at = crash_at
        self.operations = 0
        self.watch: Callable[[], None] = lambda: None

    def _step(self) -> None:
        self.watch()
        if self.operations == self.crash_at:
            raise CrashError
        self.operations += 1

    def sizes(self, name: str = "") -> dict[str, int]:
        found: dict[str, int] = {}
        for inner, size in self.tree(name).items():
            entry, slash, _ = inner.partition("/")
            found[entry] = 0 if slash else size
        return found

    def links(self, name: str = "") -> list[str]:
        return []

    def tree(self, name: str) -> dict[str, int]:
        head = f"{name}/" if name else ""
        return {file.removeprefix(head): len(data) for file, data in self.files.items() if file.startswith(head)}

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, data: bytes) -> None:
        self._step()
        self.files[name] = data

    def create(self, name: str, data: bytes) -> bool:
        self._step()
        return self.files.setdefault(name, data) is data

    def move(self, name: str, new: str) -> bool:
        self._step()
        if name not in self.files:
            return False
        self.files[new] = self.files.pop(name)
        return True

    def delete(self, name: str) -> None:
        self._step()
        self.files.pop(name, None)

    def remove(self, name: str) -> None:
        for file in list(self.tree(name)):
            self.delete(f"{name}/{file}")

    def subfolder(self, name: str) -> Folder:
        raise NotImplementedError


def records_of(batch: int) -> list[str]:
    """Micro-batch 2 has no records; the others have some in one or two days."""
    return [] if batch == 2 else [f"{day}{batch}{number}" for day in DAYS[: 1 + batch % 2] for number in range(3)]


EVERYTHING = Counter(record for batch in range(BATCHES) for record in records_of(batch))


def concatenate(folder: Folder) -> Callable[[Sequence[MergeGroup], str], list[Merged]]:
    def merge(groups: Sequence[MergeGroup], staging: str) -> list[Merged]:
        merged = []
        for number, group in enumerate(groups):
            parts = [folder.read(file.path) or b"" for file in group.files]
            path = f"{staging}/{number}.json"
            folder.write(path, b"".join(parts))
            merged.append(Merged(path, sum(map(len, parts)), tuple(map(len, parts))))
        return merged

    return merge


@dataclass
class Job:
    """A job with a checkpoint: ``committed`` micro-batches are never repeated."""

    rolling: Rolling | None
    files: dict[str, bytes] = field(default_factory=dict)
    committed: int = 0
    starts: int = 0
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000))

    def open(self, folder: Folder) -> SinkFolder:
        self.starts += 1
        run = f"{self.starts:08}"
        return SinkFolder(folder, self.clock, run, rolling=self.rolling, retention_ms=1_500, entries_per_snapshot=3)

    def run(self, crash_at: int | None, watch: Callable[[], None] = lambda: None) -> bool:
        """Run to the end, or crash. Returns whether it has ended."""
        folder = MemoryFolder(self.files, crash_at)
        folder.watch = watch
        try:
            self._run(folder)
        except CrashError:
            return False
        return True

    def _run(self, folder: Folder) -> None:
        sink, merger = self.open(folder), concatenate(folder)
        sink.begin(self.committed)
        for batch in range(self.committed, BATCHES):
            self.clock.advance(timedelta(seconds=1))
            if records_of(batch):
                self._write(sink, folder, batch)
            self.committed = batch + 1
            sink.publish()
            due = sink.next_roll_ms()
            if due is not None and due <= self.clock.now_ms():
                sink.roll(merger)
        sink.roll(merger)
        sink.close()

    def _write(self, sink: SinkFolder, folder: Folder, batch: int) -> None:
        staging = sink.stage(batch)
        for part, record in enumerate(records_of(batch)):
            folder.write(f"{staging}/day={record[0]}/part-{part}.json", f'"{record}"\n'.encode())
        folder.write(f"{staging}/_SUCCESS", b"done")
        sink.prepare(batch, staging)


def listed(job: Job) -> Counter[str]:
    """Return the records for a reader that lists the folder."""
    visible = [data for name, data in job.files.items() if not is_hidden(name)]
    return Counter(json.loads(line) for data in visible for line in data.splitlines())


def logged(job: Job, after: int = -1, last: int | None = None, state: LogState | None = None) -> list[str]:
    """Return the records for a reader that follows the log."""
    folder = MemoryFolder(job.files)
    state = read_log(folder) if state is None else state
    found: list[str] = []
    for part in parts_between(folder, state, after, state.last_batch if last is None else last):
        data = folder.read(part.file.path)
        assert data is not None
        found += map(json.loads, data[part.start : part.stop].splitlines())
    return found


class Follower:
    """Reads the new records whenever the writer changes something."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.position = -1
        self.seen = Counter[str]()

    def read(self) -> None:
        state = state_of(self.job)
        assert state.last_batch < self.job.committed
        self.seen.update(logged(self.job, self.position, state=state))
        self.position = max(self.position, state.last_batch)
        assert self.seen == records_up_to(self.position)
        assert Counter(logged(self.job, state=state)) == self.seen
        assert listed(self.job) <= records_up_to(self.job.committed - 1)


def records_up_to(last: int) -> Counter[str]:
    return Counter(record for batch in range(last + 1) for record in records_of(batch))


def state_of(job: Job) -> LogState:
    return read_log(MemoryFolder(job.files))


def operations(rolling: Rolling | None) -> int:
    folder = MemoryFolder({})
    Job(rolling)._run(folder)
    return folder.operations


ROLLINGS = pytest.mark.parametrize("rolling", [NO_ROLLING, BY_SIZE, BY_TIME], ids=["no rolling", "size", "time"])


@pytest.mark.parametrize("rolling", [NO_ROLLING, BY_TIME], ids=["no rolling", "time"])
def test_second_crash_while_the_first_is_cleared_up(rolling: Rolling | None) -> None:
    for first in range(0, operations(rolling), 2):
        for second in range(first % 3, 12, 3):
            job = Job(rolling)
            job.run(first)
            follower = Follower(job)
            if not job.run(second, follower.read):
                job.run(None)
            follower.read()
            assert listed(job) == follower.seen == EVERYTHING


@ROLLINGS
def test_crash_while_existing_files_are_merged(rolling: Rolling | None) -> None:
    for crash_at in range(40):
        job = Job(rolling)
        job.run(30)  # it has not ended, and may have prepared a micro-batch
        folder = MemoryFolder(job.files, crash_at)
        with contextlib.suppress(CrashError):
            compact(job, folder)
        assert Counter(logged(job)) == records_up_to(state_of(job).last_batch)
        assert job.run(None)
        assert Counter(logged(job)) == EVERYTHING
        job.clock.advance(timedelta(hours=1))
        assert job.run(None)
        assert job.run(None)  # summarizes the log, so files that were replaced are deleted
        assert listed(job) == EVERYTHING


def compact(job: Job, folder: Folder, target_bytes: int = 10**6) -> int:
    sink = job.open(folder)
    sink.begin(None)
    replaced = sink.compact(target_bytes, concatenate(folder))
    sink.close()
    return replaced


def test_rolling_leaves_few_files() -> None:
    rolled, single = Job(BY_TIME), Job(NO_ROLLING)
    assert rolled.run(None)
    assert single.run(None)
    assert len(state_of(single).files) == sum(EVERYTHING.values())
    files = state_of(rolled).files.values()
    assert not any(file.is_hidden for file in files)
    assert Counter(partition_folder(file.path) for file in files) == {"day=a": 2, "day=b": 2}


def test_small_files_of_a_job_that_no_longer_rolls_are_merged() -> None:
    job = Job(BY_SIZE)
    folder = MemoryFolder(job.files, 25)
    with pytest.raises(CrashError):
        job._run(folder)
    assert any(file.is_hidden for file in state_of(job).files.values())
    job.rolling = NO_ROLLING
    assert job.run(None)
    assert listed(job) == EVERYTHING


@ROLLINGS
def test_log_stays_small(rolling: Rolling | None) -> None:
    job = Job(rolling)
    for _ in range(30):
        assert job.run(None)  # a start and an end
    assert len(MemoryFolder(job.files).sizes(LOG)) < 12
    assert listed(job) == EVERYTHING


def test_positions_survive_merges() -> None:
    before, merged = Job(NO_ROLLING), Job(NO_ROLLING)
    assert before.run(None)
    assert merged.run(None)
    assert compact(merged, MemoryFolder(merged.files), 45) > 0
    assert len(state_of(merged).files) < len(state_of(before).files)
    for after in range(-1, BATCHES):
        for last in range(after, BATCHES):
            expected = logged(before, after, last)
            assert logged(merged, after, last) == expected  # in the same order
            assert Counter(expected) == records_up_to(last) - records_up_to(after)


def test_replaced_files_stay_for_readers() -> None:
    job = Job(NO_ROLLING)
    assert job.run(None)
    before = state_of(job)
    compact(job, MemoryFolder(job.files))
    assert Counter(logged(job, state=before)) == EVERYTHING  # of a reader that has read the log before
    job.clock.advance(timedelta(milliseconds=1_500))
    job.run(None)
    assert not before.files.keys() & job.files.keys()
    assert Counter(logged(job)) == listed(job) == EVERYTHING


def test_earlier_run_can_no_longer_write() -> None:
    job = Job(NO_ROLLING)
    folder = MemoryFolder(job.files)
    late = job.open(folder)
    late.begin(0)
    staging = late.stage(0)
    assert job.run(None)
    folder.write(f"{staging}/part-0.json", b'"late"\n')
    late.prepare(0, staging)
    with pytest.raises(JobError, match="Another process has written to the log"):
        late.publish()
    assert listed(job) == EVERYTHING


def test_late_merge_leaves_nothing() -> None:
    job = Job(NO_ROLLING)
    assert job.run(None)
    folder = MemoryFolder(job.files)
    late = job.open(folder)
    late.begin(None)
    assert job.run(None)
    with pytest.raises(JobError, match="Another process has written to the log"):
        late.compact(10**6, concatenate(folder))
    assert REPLACING not in job.files
    assert listed(job) == EVERYTHING


def test_last_micro_batches_are_removed_and_written_again() -> None:
    job = Job(NO_ROLLING)
    assert job.run(None)
    sink = job.open(MemoryFolder(job.files))
    sink.begin(2)
    sink.truncate(1)
    sink.close()
    assert state_of(job).last_batch == 1
    assert Counter(logged(job)) == listed(job) == records_up_to(1)
    job.committed = 2
    assert job.run(None)
    assert Counter(logged(job)) == listed(job) == EVERYTHING
    compact(job, MemoryFolder(job.files))
    sink = job.open(MemoryFolder(job.files))
    with pytest.raises(ConfigurationError, match="has the records of the micro-batches 0 to 4, which were merged"):
        sink.truncate(1)


def test_files_of_another_schema_are_not_merged_together() -> None:
    folder, clock = MemoryFolder({}), ManualClock(1)
    sink = SinkFolder(folder, clock, "run", rolling=BY_SIZE)
    sink.begin(0)
    for batch, schema in enumerate((0, 0, 1, 1, 0)):
        staging = sink.stage(batch)
        folder.write(f"{staging}/part-0.json", b"1\n")
        sink.prepare(batch, staging, schema)
        sink.publish()
    sink.roll(concatenate(folder))
    assert [(file.first, file.last, file.schema) for file in sink.state.files.values()] == [
        (0, 1, 0),
        (2, 3, 1),
        (4, 4, 0),
    ]


def test_command_cleans_what_attempts_have_left() -> None:
    job = Job(BY_TIME)
    folder = MemoryFolder(job.files)
    late = job.open(folder)
    assert job.run(None)
    for attempt in ("8-900000-run-1", "9-1000000-run-1", "9-9999999-run-1"):
        folder.write(f"{DATA}/{attempt}/part-0.json", b"1\n")
    assert clean(folder, 900_000) == {}
    before = dict(job.files)
    found = clean(folder, 2_000_000, dry_run=True)
    assert job.files == before
    assert clean(folder, 2_000_000) == found
    assert {f"{DATA}/8-900000-run-1/part-0.json", f"{DATA}/9-1000000-run-1/part-0.json"} <= found.keys()
    assert f"{DATA}/9-9999999-run-1/part-0.json" in job.files
    assert Counter(logged(job)) == listed(job) == EVERYTHING
    del late


def test_command_keeps_what_a_live_job_needs() -> None:
    for crash_at in range(0, operations(BY_TIME), 4):
        job = Job(BY_TIME)
        cleaned = MemoryFolder(job.files)

        def clean_now(cleaned: MemoryFolder = cleaned) -> None:
            clean(cleaned, 10**9)

        job.run(crash_at, clean_now)
        assert job.run(None, clean_now)
        assert Counter(logged(job)) == listed(job) == EVERYTHING


def test_missing_and_damaged_files_are_named() -> None:
    folder = MemoryFolder({})
    sink = SinkFolder(folder, ManualClock(1), "run")
    for _ in range(3):
        sink.begin(0)
    damaged, missing, _ = sorted(folder.files)
    del folder.files[missing]
    with pytest.raises(CorruptDataError, match=f"{missing} is missing. It is part of the log of a file sink"):
        read_log(folder)
    folder.files[damaged] = folder.files[damaged].replace(b"true", b"false")
    with pytest.raises(CorruptDataError, match=f"{damaged} is damaged: its crc32"):
        read_log(folder)
