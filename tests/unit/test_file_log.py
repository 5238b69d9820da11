"""The folder of a file sink is exactly-once for all readers, although its writer is interrupted after any step."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from dsv2.errors import CorruptDataError, JobError
from dsv2.file_log import LogState, Merged, MergeGroup, Rolling, SinkFolder, parts_between, read_log
from dsv2.file_log.names import LOG, PENDING, partition_folder
from dsv2.folders import Folder, LocalFolder
from dsv2.testing import ManualClock

BATCHES = 5
DAYS = ("a", "b")
NO_ROLLING = None
BY_SIZE = Rolling(interval_ms=10**9, target_bytes=150)
BY_TIME = Rolling(interval_ms=2_000, target_bytes=10**9)


class CrashError(Exception):
    pass


class CrashingFolder(LocalFolder):
    """Fails before the operation ``crash_at``; ``remove`` then has deleted a part."""

    def __init__(self, path: str, crash_at: int | None = None) -> None:
        super().__init__(path)
        self.crash_at = crash_at
        self.operations = 0
        self.watch: Callable[[], None] = lambda: None

    def _step(self) -> None:
        self.watch()
        if self.operations == self.crash_at:
            raise CrashError
        self.operations += 1

    def write(self, name: str, data: bytes) -> None:
        self._step()
        super().write(name, data)

    def create(self, name: str, data: bytes) -> bool:
        self._step()
        return super().create(name, data)

    def move(self, name: str, new: str) -> bool:
        self._step()
        return super().move(name, new)

    def delete(self, name: str) -> None:
        self._step()
        super().delete(name)

    def remove(self, name: str) -> None:
        files = self.tree(name)
        for file in list(files)[: len(files) // 2]:
            self.delete(f"{name}/{file}")
        self._step()
        super().remove(name)


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

    path: Path
    rolling: Rolling | None
    committed: int = 0
    starts: int = 0
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000))

    def open(self, folder: Folder) -> SinkFolder:
        self.starts += 1
        run = f"{self.starts:08}"
        return SinkFolder(folder, self.clock, run, rolling=self.rolling, retention_ms=1_500, entries_per_snapshot=3)

    def run(self, crash_at: int | None, watch: Callable[[], None] = lambda: None) -> bool:
        """Run to the end, or crash. Returns whether it has ended."""
        folder = CrashingFolder(str(self.path), crash_at)
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
            staging = sink.stage(batch)
            for part, record in enumerate(records_of(batch)):
                folder.write(f"{staging}/day={record[0]}/part-{part}.json", f'"{record}"\n'.encode())
            folder.write(f"{staging}/_SUCCESS", b"done")
            if records_of(batch):
                sink.prepare(batch, staging)
            else:
                sink.discard(staging)
            self.committed = batch + 1
            sink.publish()
            due = sink.next_roll_ms()
            if due is not None and due <= self.clock.now_ms():
                sink.roll(merger)
        sink.roll(merger)
        sink.close()


def listed(path: Path) -> Counter[str]:
    """What a reader sees that lists the folder."""
    files = [file for file in path.rglob("*.json") if not any(part[0] in "._" for part in file.relative_to(path).parts)]
    return Counter(json.loads(line) for file in files for line in file.read_text().splitlines())


def logged(path: Path, after: int = -1, last: int | None = None, state: LogState | None = None) -> list[str]:
    """What a reader sees that follows the log."""
    folder = LocalFolder(str(path))
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
        state = read_log(LocalFolder(str(self.job.path)))
        assert state.last_batch < self.job.committed
        self.seen.update(logged(self.job.path, self.position, state=state))
        self.position = max(self.position, state.last_batch)
        assert self.seen == Counter(r for batch in range(self.position + 1) for r in records_of(batch))
        assert Counter(logged(self.job.path, state=state)) == self.seen
        assert listed(self.job.path) <= Counter(r for batch in range(self.job.committed) for r in records_of(batch))


ROLLINGS = pytest.mark.parametrize("rolling", [NO_ROLLING, BY_SIZE, BY_TIME], ids=["no rolling", "size", "time"])


def operations(path: Path, rolling: Rolling | None) -> int:
    job, folder = Job(path / "measured", rolling), CrashingFolder(str(path / "measured"))
    job._run(folder)
    return folder.operations


@ROLLINGS
def test_crash_at_every_operation(tmp_path: Path, rolling: Rolling | None) -> None:
    total = operations(tmp_path, rolling)
    assert total > 50
    for crash_at in range(total):
        job = Job(tmp_path / str(crash_at), rolling)
        follower = Follower(job)
        assert not job.run(crash_at, follower.read)
        follower.read()
        assert job.run(None, follower.read)
        follower.read()
        assert listed(job.path) == follower.seen == EVERYTHING
        assert Path(job.path, PENDING).exists() is False


@pytest.mark.parametrize("rolling", [NO_ROLLING, BY_TIME], ids=["no rolling", "time"])
def test_second_crash_while_the_first_is_cleared_up(tmp_path: Path, rolling: Rolling | None) -> None:
    for first in range(1, operations(tmp_path, rolling), 4):
        for second in range(1, 10, 2):
            job = Job(tmp_path / f"{first}-{second}", rolling)
            follower = Follower(job)
            job.run(first, follower.read)
            if job.run(second, follower.read) is False:
                job.run(None, follower.read)
            follower.read()
            assert listed(job.path) == follower.seen == EVERYTHING
            shutil.rmtree(job.path)


def state_of(job: Job) -> LogState:
    return read_log(LocalFolder(str(job.path)))


def test_rolling_leaves_few_files(tmp_path: Path) -> None:
    rolled, single = Job(tmp_path / "rolled", BY_TIME), Job(tmp_path / "single", NO_ROLLING)
    assert rolled.run(None)
    assert single.run(None)
    assert len(state_of(single).files) == sum(EVERYTHING.values())
    files = state_of(rolled).files.values()
    assert not any(file.is_hidden for file in files)
    assert Counter(partition_folder(file.path) for file in files) == {"day=a": 2, "day=b": 2}


@ROLLINGS
def test_log_stays_small(tmp_path: Path, rolling: Rolling | None) -> None:
    job = Job(tmp_path, rolling)
    assert job.run(None)
    for _ in range(30):
        assert job.run(None)  # a start and an end
    assert len(list((tmp_path / LOG).iterdir())) < 12
    assert listed(tmp_path) == EVERYTHING


def test_positions_survive_merges(tmp_path: Path) -> None:
    before, merged = Job(tmp_path / "before", NO_ROLLING), Job(tmp_path / "merged", NO_ROLLING)
    assert before.run(None)
    assert merged.run(None)
    sink = merged.open(LocalFolder(str(merged.path)))
    sink.begin(BATCHES)
    assert sink.compact(45, concatenate(LocalFolder(str(merged.path)))) > 0
    assert len(sink.state.files) < len(state_of(before).files)
    for after in range(-1, BATCHES):
        for last in range(after, BATCHES):
            expected = logged(before.path, after, last)
            assert logged(merged.path, after, last) == expected  # in the same order
            assert Counter(expected) == Counter(r for batch in range(after + 1, last + 1) for r in records_of(batch))


def test_replaced_files_stay_for_readers(tmp_path: Path) -> None:
    job = Job(tmp_path, NO_ROLLING)
    assert job.run(None)
    before = state_of(job)
    folder = LocalFolder(str(tmp_path))
    sink = job.open(folder)
    sink.begin(BATCHES)
    sink.compact(10**6, concatenate(folder))
    assert Counter(logged(tmp_path, state=before)) == EVERYTHING  # of a reader that has read the log before
    job.clock.advance(timedelta(milliseconds=1_500))
    sink.close()
    assert not any((tmp_path / path).exists() for path in before.files)
    assert Counter(logged(tmp_path)) == listed(tmp_path) == EVERYTHING


def test_earlier_run_can_no_longer_write(tmp_path: Path) -> None:
    job = Job(tmp_path, NO_ROLLING)
    late, folder = job.open(LocalFolder(str(tmp_path))), LocalFolder(str(tmp_path))
    late.begin(0)
    staging = late.stage(0)
    folder.write(f"{staging}/part-0.json", b'"late"\n')
    assert job.run(None)
    folder.write(f"{staging}/part-0.json", b'"late"\n')
    late.prepare(0, staging)
    with pytest.raises(JobError, match="Another process has written to the log"):
        late.publish()
    assert listed(tmp_path) == EVERYTHING


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    job = Job(tmp_path, NO_ROLLING)
    folder = LocalFolder(str(tmp_path))
    sink = SinkFolder(folder, job.clock, "run")
    for _ in range(3):
        sink.begin(0)
    (damaged, missing, _) = sorted((tmp_path / LOG).iterdir())
    missing.unlink()
    with pytest.raises(CorruptDataError, match=f"{missing.name} is missing. It is part of the log of a file sink"):
        read_log(folder)
    damaged.write_text(damaged.read_text().replace("true", "false"))
    with pytest.raises(CorruptDataError, match=f"{damaged.name} is damaged: its crc32"):
        read_log(folder)
