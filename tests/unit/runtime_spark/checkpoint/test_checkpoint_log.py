"""The start of a run according to Spark's logs, and errors for damaged log files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv2 import JobError
from dsv2.base.folders import Folder, LocalFolder
from dsv2.errors import CorruptDataError
from dsv2.sinks import SinkInfo, SinkRunInfo
from runtime_spark.checkpoint.spark_logs import Beginning, beginning_of, note_logs

METADATA = '{"id":"b1b11630-5309-46d5-a6b0-59a7e9f56ca9"}'
OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"position": 7}\n-\n'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def checkpoint_with(path: Path, offsets: int, commits: int) -> Folder:
    """A checkpoint with that many micro-batches in each log."""
    folder = LocalFolder(str(path))
    folder.write("metadata", METADATA.encode())
    for number in range(offsets):
        folder.write(f"offsets/{number}", OFFSETS.encode())
    for number in range(commits):
        folder.write(f"commits/{number}", COMMIT.encode())
    return folder


@pytest.mark.parametrize(
    ("offsets", "commits", "beginning"),
    [
        (0, 0, Beginning(0, repeats=False)),
        (1, 0, Beginning(0, repeats=True)),
        (1, 1, Beginning(1, repeats=False)),
        (6, 5, Beginning(5, repeats=True)),
        (12, 12, Beginning(12, repeats=False)),
    ],
)
def test_run_begins_where_spark_does(tmp_path: Path, offsets: int, commits: int, beginning: Beginning) -> None:
    folder = checkpoint_with(tmp_path, offsets, commits)
    folder.write("offsets/.3.crc", b"x")
    folder.write("commits/_tmp", b"x")
    assert beginning_of(folder) == beginning


def test_empty_folder_begins_at_0(tmp_path: Path) -> None:
    assert beginning_of(LocalFolder(str(tmp_path / "none"))) == Beginning(0, repeats=False)


NOT_COMPLETE = "If no sink has received records of that micro-batch, you can also delete it"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("offsets/5", NOT_COMPLETE),
        ("offsets/4", "Restore the whole checkpoint from a backup"),
        ("commits/4", "delete it; that micro-batch is then repeated"),
    ],
)
def test_changed_digit_is_found_by_the_checksum(tmp_path: Path, name: str, remedy: str) -> None:
    folder = checkpoint_with(tmp_path, 6, 5)
    for batch_id in (4, 5):
        note_logs(folder, batch_id)
    assert beginning_of(folder) == Beginning(5, repeats=True)
    folder.write(name, (folder.read(name) or b"").replace(b"0", b"1"))
    with pytest.raises(CorruptDataError, match=f"{name} is damaged: .*its checksum is different.*{remedy}"):
        beginning_of(folder)


def test_damaged_checksums_are_named_and_can_be_deleted(tmp_path: Path) -> None:
    folder = checkpoint_with(tmp_path, 6, 5)
    note_logs(folder, 5)
    folder.write("dsv2/logs.json", (folder.read("dsv2/logs.json") or b"").replace(b"offsets/5", b"offsets/6"))
    with pytest.raises(CorruptDataError, match=r"dsv2/logs\.json is damaged: .* Delete it\."):
        beginning_of(folder)
    folder.delete("dsv2/logs.json")
    assert beginning_of(folder) == Beginning(5, repeats=True)


def test_deleted_log_needs_no_checksum(tmp_path: Path) -> None:
    folder = checkpoint_with(tmp_path, 6, 5)
    note_logs(folder, 5)
    folder.delete("offsets/5")
    assert beginning_of(folder) == Beginning(5, repeats=False)


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("offsets/5", "", NOT_COMPLETE),
        ("offsets/5", "v1", NOT_COMPLETE),
        ("offsets/5", OFFSETS[:40], NOT_COMPLETE),
        ("offsets/5", OFFSETS.replace("v1", "w1"), NOT_COMPLETE),
        ("offsets/5", OFFSETS.replace('"position"', '"position'), NOT_COMPLETE),
        ("offsets/5", OFFSETS.replace("\n-\n", ""), NOT_COMPLETE),
        ("offsets/4", OFFSETS[:10], "Restore the whole checkpoint from a backup"),
        ("offsets/4", OFFSETS.replace("\n-\n", ""), "Restore the whole checkpoint from a backup"),
        ("offsets/4", None, "Restore the whole checkpoint from a backup"),
        ("offsets/5", "v1\n[]\n-\n{}", NOT_COMPLETE),
        ("offsets/5", "v1\n{}", NOT_COMPLETE),
        ("commits/4", "v1\n[]", "delete it; that micro-batch is then repeated"),
        ("commits/4", "", "delete it; that micro-batch is then repeated"),
        ("commits/4", COMMIT[:12], "delete it; that micro-batch is then repeated"),
        ("commits/4", COMMIT.replace("v1", "\x00\x01"), "delete it; that micro-batch is then repeated"),
        ("metadata", "", 'write {"id":"<any UUID>"} into it'),
        ("metadata", METADATA.replace("b1b", "b1x"), 'write {"id":"<any UUID>"} into it'),
        ("metadata", "[]", 'write {"id":"<any UUID>"} into it'),
        ("metadata", None, 'write {"id":"<any UUID>"} into it'),
    ],
)
def test_damaged_file_is_named_with_a_remedy(tmp_path: Path, name: str, text: str | None, remedy: str) -> None:
    folder = checkpoint_with(tmp_path, 6, 5)
    if text is None:
        folder.delete(name)
    else:
        folder.write(name, text.encode())
    with pytest.raises(CorruptDataError) as refused:
        beginning_of(folder)
    assert str(refused.value).startswith(f"{tmp_path}/{name} is ")
    assert remedy in str(refused.value)


def test_invalid_utf8_is_damage(tmp_path: Path) -> None:
    folder = checkpoint_with(tmp_path, 6, 5)
    folder.write("offsets/5", b"v1\n\xff\xfe")
    with pytest.raises(CorruptDataError, match="offsets/5 is damaged: UnicodeDecodeError"):
        beginning_of(folder)


# --- Runs, for sinks --------------------------------------------------------------------------------------------------


def info(run: SinkRunInfo) -> SinkInfo:
    return SinkInfo("job", "sink", 1, run)


def test_batches_of_this_history_are_skipped() -> None:
    own = info(SinkRunInfo("c", 7, ("a", "b")))
    assert [own.is_written(7, last, run) for last, run in ((6, "b"), (6, "z"), (-1, ""), (7, "a"), (7, "c"))] == [
        False, False, False, True, True,
    ]  # fmt: skip
    assert [own.is_written(8, last, run) for last, run in ((6, "z"), (7, "b"), (7, "c"), (8, "c"))] == [
        False, False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(("last", "run"), [(7, "z"), (8, "a"), (8, "z"), (100, "b")])
def test_batches_of_another_history_are_refused(last: int, run: str) -> None:
    """A backup of the checkpoint was restored, or another driver has continued."""
    own = info(SinkRunInfo("c", 7, ("a", "b")))
    for batch_id in (7, 8, 200):
        with pytest.raises(
            JobError, match=f"The sink already has micro-batch {last} from .* continues with micro-batch 7"
        ):
            own.is_written(batch_id, last, run)
