"""The log of pages: transactions, crashes within them, loss of power, damage, full disks, and the size of the log."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv2.base.folders import LocalFolder
from dsv2.errors import CorruptDataError, JobError
from dsv2.local import checkpoint, page_log
from dsv2.local.page_log import LogPlace, PageLog, PinnedPages, open_log
from tests.log_writer import MAPS, PAGES, Content, Writer, content_of, make_limits_small, opened
from tests.profiles import examples


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


@settings(examples(25))
@given(st.integers(0, 10**6), st.lists(st.sampled_from(["commit", "mark", "crash", "reopen"]), min_size=1, max_size=80))
def test_log_has_what_was_committed(tmp_path_factory: pytest.TempPathFactory, seed: int, actions: list[str]) -> None:
    writer = Writer(tmp_path_factory.mktemp("log"), seed)
    is_marked = True
    for action in actions:
        writer.change()
        writer.check()
        if action != "crash":
            writer.commit()
            is_marked = False
        if action == "mark":
            writer.log.mark()
            is_marked = True
        if action in ("crash", "reopen"):
            writer.reopen()
        assert writer.log.is_marked == is_marked
        assert writer.log.others == ([] if is_marked else [b"other", b"%d" % writer.number])
        writer.check()


@settings(examples(25))
@given(st.integers(0, 10**6))
def test_pinned_transactions_stay_as_they_are(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    writer = Writer(tmp_path_factory.mktemp("log"), seed)
    with ExitStack() as stack:
        pinned: list[tuple[PinnedPages, Content, bytes]] = []
        for number in range(120):
            writer.change()
            if number % 3:
                writer.commit()
                writer.log.mark()
            if not number % 17:
                pages = stack.enter_context(writer.log.pinned())
                pinned.append((pages, dict(writer.committed), b"%d" % writer.number))
        writer.log.close()  # as when the job ends
        for pages, content, last in pinned:
            found = {(name, place): pages.stored(name).get(place) for name in MAPS for place in range(PAGES)}
            assert {where: page for where, page in found.items() if page is not None} == content
            assert pages.notes.get("number", b"0") == last
        assert len(list(writer.folder.iterdir())) <= 12, "segments are deleted while they are read"


@settings(examples(25))
@given(st.integers(0, 10**6))
def test_log_is_followed_by_another_process(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    writer = Writer(tmp_path_factory.mktemp("log"), seed)
    log = opened(writer.folder, writes=False)
    followed = 0
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_log, "BATCH", "number")
        pinned: list[tuple[PinnedPages, Content]] = []
        for number in range(120):
            writer.change()
            writer.commit()
            if not number % 3:  # the last transaction is only in this log, so the one before it is read
                content, last = dict(writer.committed), writer.number
                writer.log.mark()
                writer.change()
                writer.commit()
                if log.follow(last):
                    followed += 1
                else:
                    log = open_log(LogPlace(str(writer.folder), last), durable=False, writes=False)
                log.close()
                pinned.append((stack.enter_context(log.pinned()), content))
            writer.log.mark()
        for pages, content in pinned:
            found = {(name, place): pages.stored(name).get(place) for name in MAPS for place in range(PAGES)}
            assert {where: page for where, page in found.items() if page is not None} == content
    assert followed


def test_read_begins_again_when_a_worker_is_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = opened(tmp_path / "local", writes=True)
    worker = opened(tmp_path / "local/workers-0/0", writes=True)
    page = MAPS[0], 0

    def commit(batch_id: int) -> None:
        for log, note in ((worker, "batch"), (own, "batch_id")):
            log.put(*page, b"%d" % batch_id)
            log.commit({note: b"%d" % batch_id, "workers": b'{"folder": "workers-0", "count": 1}'}, ())
            log.mark()

    def opened_late(place: LogPlace, *, durable: bool, writes: bool) -> PageLog:
        if place.batch_id == 1:
            monkeypatch.setattr(page_log, "_LEAST_SEGMENT", 0)
            commit(2)  # in a new segment, which begins with the first micro-batch
            commit(3)
        return open_log(place, durable=durable, writes=writes)

    commit(1)
    monkeypatch.setattr(checkpoint, "open_log", opened_late)
    read = checkpoint.LocalCheckpoint(LocalFolder(str(tmp_path)))
    monkeypatch.setattr(read, "_log", own)
    with read.pinned() as (batch_id, (pages,)):
        assert (batch_id, pages.stored(page[0]).get(page[1])) == (3, b"3")


def test_log_does_not_grow_without_limit(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 1)
    for _ in range(600):
        writer.change()
        writer.commit()
        writer.log.mark()
    live = sum(map(len, writer.committed.values()))
    assert writer.log.size < 5 * (live + 20_000)
    assert len(list(tmp_path.iterdir())) < 40
    writer.reopen()
    writer.check()


def test_pages_that_never_change_are_kept(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.put(MAPS[0], 5, b"kept")
    for number in range(300):
        log.put(MAPS[1], number % 3, b"%d" % number * 300)
        log.commit({}, [])
        log.mark()
    assert min(int(file.stem) for file in tmp_path.iterdir()) > 3
    assert log.get(MAPS[0], 5) == b"kept"
    assert opened(tmp_path).get(MAPS[0], 5) == b"kept"


def test_replaced_pages_are_read_until_the_next_transaction(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for name in MAPS:
        log.put(name, 1, b"former")
    log.commit({}, [])
    log.replace_all()
    log.put(MAPS[0], 1, b"new")
    assert [log.stored(name).get(1) for name in MAPS] == [b"former"] * 3
    assert log.names() == MAPS
    assert content_of(log) == {(MAPS[0], 1): b"new"}
    log.commit({}, [])
    assert [log.stored(name).get(1) for name in MAPS] == [b"new", None, None]


def test_log_is_listed_when_it_is_recovered(tmp_path: Path) -> None:
    late = PageLog(str(tmp_path))
    log = opened(tmp_path)
    log.put(MAPS[0], 1, b"page")
    log.commit({}, [])
    log.close()
    late.recover(writes=True)
    assert content_of(late) == {(MAPS[0], 1): b"page"}


def test_reads_that_return_less_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, real = Writer(tmp_path, 4), os.pread
    writer.change()
    writer.commit()
    monkeypatch.setattr(os, "pread", lambda file, size, offset: real(file, min(size, 100), offset))
    writer.reopen()
    writer.check()


def last_two(folder: Path) -> tuple[Writer, Content, int]:
    """Write transactions, and return the writer, the content before the last one, and the size of the file then."""
    writer = Writer(folder, 3)
    for _ in range(3):
        writer.change()
        writer.commit()
        writer.log.mark()
    before, size = writer.committed, writer.log.size
    writer.change()
    writer.commit()
    writer.log.close()
    return writer, before, size


def test_transaction_that_was_cut_off_leaves_no_trace(tmp_path: Path) -> None:
    writer, before, size = last_two(tmp_path)
    (file,) = tmp_path.iterdir()
    data = file.read_bytes()
    for end in [*range(size, size + 40), *range(size + 40, len(data), 97), len(data) - 1]:
        file.write_bytes(data[:end])
        log = opened(tmp_path)
        assert content_of(log) == before
        assert log.is_marked
        log.put(MAPS[0], 0, b"new")
        log.commit({}, [])
        log.close()
        assert content_of(opened(tmp_path)) == before | {(MAPS[0], 0): b"new"}
    file.write_bytes(data)
    assert content_of(opened(tmp_path)) == writer.committed


def test_blocks_that_did_not_reach_the_disk_leave_no_trace(tmp_path: Path) -> None:
    _, before, size = last_two(tmp_path)
    (file,) = tmp_path.iterdir()
    data = file.read_bytes()
    for start in range(size - size % 512 + 512, len(data), 512):
        for end in (start + 512, len(data)):
            file.write_bytes(data[:start] + bytes(min(end, len(data)) - start) + data[end:])
            assert content_of(opened(tmp_path)) == before
    file.write_bytes(data[:size] + bytes(len(data) - size))
    assert content_of(opened(tmp_path)) == before


def test_changed_byte_is_noticed(tmp_path: Path) -> None:
    writer, _, _ = last_two(tmp_path)
    writer.reopen()
    writer.log.mark()
    writer.log.close()
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    last = len(data) - page_log._HEADER.size  # of the mark, without which the transaction is written again
    for place in [*range(80), *range(80, last, 61)]:
        data[place] ^= 4
        file.write_bytes(data)
        with pytest.raises(CorruptDataError, match=rf"{file} is damaged at byte \d+\. Restore"):
            opened(tmp_path)
        data[place] ^= 4


def test_reader_changes_nothing(tmp_path: Path) -> None:
    _, before, size = last_two(tmp_path)
    (file,) = tmp_path.iterdir()
    cut = file.read_bytes()[: size + 100]
    file.write_bytes(cut)
    assert content_of(opened(tmp_path, writes=False)) == before
    assert file.read_bytes() == cut


def test_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path, 5)
    writer.change()
    writer.commit()
    writer.change()
    real = os.pwrite

    def writes_a_part(file: int, data: memoryview, offset: int) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data[: len(data) // 2], offset)

    monkeypatch.setattr(os, "pwrite", writes_a_part)
    with pytest.raises(JobError, match="cannot be written: No space left on device"):
        writer.commit()
    monkeypatch.undo()
    writer.number -= 1
    writer.reopen()
    writer.check()


class Disk:
    """A disk that loses what was not forced to it, in part or as a whole."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.forced: dict[int, int] = {}  # the size that is safe, by inode
        monkeypatch.setattr(os, "fdatasync", self._force)
        monkeypatch.setattr(os, "fsync", self._force)

    def _force(self, file: int) -> None:
        status = os.fstat(file)
        self.forced[status.st_ino] = status.st_size

    def lose_power(self, folder: Path, choice: random.Random) -> None:
        for file in self._files(folder):
            safe, size = self.forced.get(file.stat().st_ino, 0), file.stat().st_size
            kept = choice.randint(safe, size)
            os.truncate(file, kept)
            if choice.random() < 0.5:
                os.truncate(file, size)  # zeros

    @staticmethod
    def _files(folder: Path) -> Iterator[Path]:
        return (file for file in folder.iterdir() if not file.name.startswith("."))


def test_names_of_new_folders_are_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    opened(tmp_path / "new" / "log").commit({}, [])
    assert {place.stat().st_ino for place in (tmp_path, tmp_path / "new", tmp_path / "new" / "log")} <= {*disk.forced}


@pytest.mark.parametrize("seed", range(20))
def test_loss_of_power_loses_no_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(page_log, "_BLOCK", 1)  # this disk writes single bytes
    disk, writer = Disk(monkeypatch), Writer(tmp_path, seed)
    for _ in range(12):
        for _ in range(writer.random.randrange(8)):
            writer.change()
            writer.commit()
            writer.log.mark()
        writer.change()
        writer.log.close()
        disk.lose_power(tmp_path, writer.random)
        writer.reopen()
        writer.check()


def test_nothing_waits_for_the_disk_without_durability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, writer = Disk(monkeypatch), Writer(tmp_path, 2, durable=False)
    for _ in range(30):
        writer.change()
        writer.commit()
        writer.log.mark()
    assert len([*tmp_path.iterdir()]) > 3
    assert disk.forced == {}
