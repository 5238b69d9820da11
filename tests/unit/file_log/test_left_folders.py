"""Folders of file sinks that a restarted program has no more: their micro-batches are published, or it is refused."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.file_folders import folders_of, left_folders
from dsv2.errors import DroppedStateWarning, IncompatibleCheckpointError
from dsv2.file_log import LogState, Rolling, SinkFolder, read_log
from dsv2.file_log.completion import Completion
from dsv2.file_log.description import Description
from dsv2.file_log.ownership import OutputOwner, SinkPlace
from dsv2.local import LocalRuntime
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.local.sinks import LocalMerger
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink, FileSink
from dsv2.testing import ManualClock, Stop, TestSource
from tests.steps import KilledError, Steps, steps_of_files
from tests.support import local_environment


class Row(NamedTuple):
    n: int


COUNT = 4
ROWS = [Row(n) for n in range(COUNT)]


def visible(*folders: Path) -> list[int]:
    files = [file for folder in folders for file in folder.glob("*.json")]
    return [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]


# --- Local jobs, killed at every step, then changed -------------------------------------------------------------------


class Program:
    """Writes ``ROWS`` to one sink for each uid in ``paths``. The sinks get the numbers plus 0, 100, 200, ..."""

    def __init__(self, folder: Path, rolling: timedelta | None = None) -> None:
        self.folder = folder
        self.rolling = rolling
        self.collected: list[int] = []

    def refusal(self, paths: dict[str, str]) -> str:
        """Run it, and return why it was refused; empty if it was not."""
        try:
            self.run(paths)
        except IncompatibleCheckpointError as error:
            return str(error)
        return ""

    def run(self, paths: dict[str, str], **options: Any) -> None:
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(1_000), checks=False))
        rows = env.from_source(TestSource[Row](ROWS, records_per_batch=2)).with_uid("in")
        for uid, name in paths.items():
            sink = FileSink[Row](self.folder / name, schema=Row, format="json", roll_interval=self.rolling)
            rows.to_sink(sink).with_uid(uid)
        others = CollectSink[Row]()
        rows.to_sink(others).with_uid("others")
        try:
            env.execute("left", checkpoint_location=self.folder / "checkpoint", **options)
        finally:
            self.collected = [row.n for row in others.results]

    def seen(self, *names: str) -> Counter[int]:
        return Counter(visible(*(self.folder / name for name in names)))


def killed_at_each_step(
    tmp_path: Path, rolling: timedelta | None, before: dict[str, str], then: Callable[[Program], None]
) -> int:
    for number in itertools.count(0, 2):  # after one step is before the next one
        program, steps = Program(tmp_path / str(number), rolling), Steps(number)
        with suppress(KilledError), steps_of_files(steps):
            program.run(before)
        if steps.left >= 0:
            return number
        then(program)
    raise AssertionError


@pytest.mark.parametrize(
    ("rolling", "after"),
    [(None, {"out": "b"}), (timedelta(hours=1), {"out": "b"}), (None, {"renamed": "a"})],
    ids=["moved", "moved, rolling", "renamed"],
)
def test_moved_or_renamed_sink_loses_and_repeats_nothing(
    tmp_path: Path, rolling: timedelta | None, after: dict[str, str]
) -> None:
    refused: list[str] = []

    def then(program: Program) -> None:
        if refusal := program.refusal(after):
            assert "renamed" in after, refusal  # a sink that was moved is never refused
            refused.append(refusal)
            program.run({"out": "a"})  # as the error says
        assert program.seen("a", "b") == Counter(range(COUNT))

    steps = killed_at_each_step(tmp_path, rolling, {"out": "a"}, then)
    assert steps > 30
    assert len(refused) < steps / 2


def test_output_of_a_removed_sink_is_complete(tmp_path: Path) -> None:
    def then(program: Program) -> None:
        if refusal := program.refusal({}):
            place = re.escape(str(program.folder / "a"))
            assert re.search(f"holds records of micro-batch . for the sink 'out' in {place}.*no longer has", refusal)
            program.run({"out": "a"})
            assert program.seen("a") == Counter(range(COUNT))
            return
        # What the changed program did not read was written before: no micro-batch is missing in between.
        of_former = program.seen("a")
        assert sorted(of_former) == [*range(len(of_former))]
        assert of_former.total() >= COUNT - len(program.collected)
        assert set(of_former.values()) <= {1}

    assert killed_at_each_step(tmp_path, timedelta(hours=1), {"out": "a"}, then) > 30


def test_third_folder_gets_nothing_again(tmp_path: Path) -> None:
    """The second start, which moves the sink, is killed as well."""
    first = next(number for number in itertools.count() if _lacks_records(tmp_path / "probe" / str(number), number))
    for second in itertools.count(0, 2):
        program, steps = Program(tmp_path / str(second)), Steps(second)
        with suppress(KilledError), steps_of_files(Steps(first)):
            program.run({"out": "a"})
        with suppress(KilledError), steps_of_files(steps):
            program.run({"out": "b"})
        if steps.left >= 0:
            break
        program.run({"out": "c"})
        assert program.seen("a", "b", "c") == Counter(range(COUNT)), second
    assert second > 10


def _lacks_records(folder: Path, steps: int) -> bool:
    """Return whether a run that is killed after so many steps has stored micro-batch 1, but has not written it."""
    with suppress(KilledError), steps_of_files(Steps(steps)):
        Program(folder).run({"out": "a"})
    checkpoint = LocalCheckpoint(LocalFolder(str(folder / "checkpoint")))
    stored = checkpoint.last()
    return stored is not None and stored.batch_id == 1 and not checkpoint.is_written


def test_exchanged_folders_are_refused_while_a_sink_lacks_records(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()

    def then(program: Program) -> None:
        refusal = program.refusal({"x": "b", "y": "a"})
        outcomes["refused" if refusal else "run"] += 1
        if refusal:
            assert "writes to the folder of another sink" in refusal
            program.run({"x": "a", "y": "b"})
        assert program.seen("a") == program.seen("b") == Counter(range(COUNT))

    killed_at_each_step(tmp_path, None, {"x": "a", "y": "b"}, then)
    assert outcomes["refused"] > 0
    assert outcomes["run"] > outcomes["refused"]


def test_records_that_may_be_dropped_are_not_written_elsewhere(tmp_path: Path) -> None:
    def then(program: Program) -> None:
        program.run({}, allow_dropped_state=True)
        assert set(program.seen("a").values()) <= {1}

    killed_at_each_step(tmp_path, None, {"out": "a"}, then)


def test_savepoints_know_the_folders(tmp_path: Path) -> None:
    env = local_environment()
    rows = env.from_source(TestSource[Row]([*ROWS[:2], Stop(), *ROWS[2:]])).with_uid("in")
    rows.to_sink(FileSink(tmp_path / "a", schema=Row, format="json", roll_interval=timedelta(hours=1))).with_uid("out")
    job = env.execute_async("job", checkpoint_location=tmp_path / "checkpoint")
    job.await_termination()
    path = job.savepoint(tmp_path / "savepoint")
    assert Savepoint.open(path).sinks["out"].folder == f"file:{tmp_path / 'a'}"


# --- What completes a folder ------------------------------------------------------------------------------------------

OWNER = OutputOwner("job", "checkpoint")


def crashed(path: Path, pending: int, *, rolling: bool = False, owner: OutputOwner = OWNER) -> LocalFolder:
    """A folder that has the micro-batch before ``pending``, and has prepared ``pending``."""
    folder = LocalFolder(str(path))
    SinkPlace(folder, folder.path, "").own(owner)
    Description.update(folder, "json", (), {})
    roll = Rolling(1_000, 1 << 20) if rolling else None
    sink = SinkFolder(folder, ManualClock(1_000), "run", rolling=roll, suffix="json")
    sink.begin(0)
    for batch in (pending - 1, pending):
        staging = sink.stage(batch)
        folder.write(f"{staging}/part.txt", b'{"n": %d}\n' % batch)  # Spark writes JSON as text
        sink.prepare(batch, staging)
        if batch < pending:
            sink.publish()
    return folder


def complete(
    left: Sequence[tuple[str, str]], first_batch: int, *, takes_over: bool = False, allow_dropped: bool = False
) -> None:
    completion = Completion(
        lambda path: LocalFolder(path.removeprefix("file:")),
        LocalMerger,
        OWNER,
        first_batch,
        ManualClock(2_000),
        allow_dropped,
    )
    completion.complete(left, "later", takes_over=takes_over)


def log(path: Path) -> LogState:
    return read_log(LocalFolder(str(path)))


@pytest.mark.parametrize("rolling", [False, True])
def test_published_files_that_are_to_be_merged_stay(tmp_path: Path, rolling: bool) -> None:
    """The driver died after the entry in the log, before it deleted the record of what it had prepared."""
    folder, sink = crashed(tmp_path, 5, rolling=True), ManualClock(2_000)
    prepared = folder.read("_dsv2/pending.json")
    assert prepared is not None
    SinkFolder(folder, sink, "second", rolling=Rolling(1_000, 1 << 20)).begin(6)
    folder.write("_dsv2/pending.json", prepared)
    after = SinkFolder(folder, sink, "third", rolling=Rolling(1_000, 1 << 20) if rolling else None, suffix="json")
    after.begin(6)
    after.roll(LocalMerger(folder))
    assert sorted(visible(tmp_path)) == [4, 5]


def test_folders_of_others_stay_as_they_are(tmp_path: Path) -> None:
    for owner in (OutputOwner("other", "checkpoint"), OutputOwner("job", "that began with a savepoint")):
        path = tmp_path / owner.checkpoint_id
        crashed(path, 5, owner=owner)
        complete([("out", str(path))], 6)
        assert visible(path) == [4]


def test_job_of_a_savepoint_may_still_run(tmp_path: Path) -> None:
    theirs = OutputOwner("job", "of the job that was saved")
    for name, pending, expected in (("crashed", 5, [4, 5]), ("runs", 6, [5])):
        path = tmp_path / name
        folder = crashed(path, pending, owner=theirs)
        complete([("out", str(path))], 6, takes_over=True)
        assert sorted(visible(path)) == expected
        sink = SinkFolder(folder, ManualClock(3_000), "again", suffix="json")
        sink.begin(7)  # it has committed its micro-batch 6 meanwhile
        assert sorted(visible(path)) == [4, 5] if name == "crashed" else [5, 6]
    other = tmp_path / "other job"
    crashed(other, 5, owner=OutputOwner("other", "checkpoint"))
    complete([("out", str(other))], 6, takes_over=True)
    assert visible(other) == [4]


def test_folder_that_cannot_be_completed_is_named(tmp_path: Path) -> None:
    crashed(tmp_path, 5)
    shutil.rmtree(tmp_path / "_dsv2" / "data")
    left = [("out", str(tmp_path))]
    with pytest.raises(
        IncompatibleCheckpointError, match=rf"sink 'out' .* {tmp_path}\. .*missing.* allow_dropped_state"
    ):
        complete(left, 6)
    with pytest.warns(DroppedStateWarning, match="may not be visible there"):
        complete(left, 6, allow_dropped=True)


def test_folders_are_compared_as_paths(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    env = local_environment()
    env.from_collection([Row(1)]).with_uid("in").to_sink(FileSink(f"{tmp_path}/./link/", schema=Row)).with_uid("out")
    now = folders_of(env.build_plan(), lambda path: LocalFolder(path))
    before = [("x", f"file://{tmp_path}/a"), ("y", f"{tmp_path}/b"), ("no file sink", "")]
    assert left_folders(before, now) == [("y", f"{tmp_path}/b")]
