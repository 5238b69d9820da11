"""The live view on a real terminal, which an emulator renders: what scrolls, what stays, and what remains."""

from __future__ import annotations

import fcntl
import os
import pty
import queue
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pyte
import pytest

from dsv2 import JobStatus
from dsv2.views.terminal import LiveView, live_view
from dsv2.views.terminal.displays import Docked, Lines, display_on
from dsv2.views.terminal.dock import Dock
from dsv2.views.terminal.live_view import JobView, Summarizer
from dsv2.views.terminal.texts import ShownJob
from tests.durations import LONG
from tests.fake_jobs import FakeJob, hot_topics_plan, hot_topics_progress, steps_plan, steps_progress


class Terminal:
    """A terminal. ``stream`` writes to it, and ``screen`` shows what a user sees."""

    def __init__(self, stream: TextIO, master: int, columns: int, lines: int) -> None:
        self.stream = stream
        self._master = master
        self._screen: Any = pyte.HistoryScreen(columns, lines, history=1_000)
        self._bytes = pyte.ByteStream(self._screen)

    def write_as_another_process(self, text: str) -> None:
        """Write without the stream, as the JVM of Spark does."""
        os.write(self.stream.fileno(), text.encode())

    def resize(self, columns: int, lines: int) -> None:
        set_size(self._master, columns, lines)
        self._read()
        self._screen.resize(lines, columns)

    @property
    def screen(self) -> list[str]:
        self._read()
        return [line.rstrip() for line in self._screen.display]

    @property
    def all_lines(self) -> list[str]:
        """The lines on the screen, after those that have scrolled out of it."""
        shown = self.screen
        above = ["".join(line[x].data for x in range(self._screen.columns)) for line in self._screen.history.top]
        return [line.rstrip() for line in above] + shown

    @property
    def scrolls_as_a_whole(self) -> bool:
        self._read()
        margins = self._screen.margins
        return margins is None or (margins.top, margins.bottom) == (0, self._screen.lines - 1)

    @property
    def colours(self) -> set[str]:
        self._read()
        return {character.fg for line in self._screen.buffer.values() for character in line.values()}

    def _read(self) -> None:
        while data := read_now(self._master):
            self._bytes.feed(data)


def read_now(master: int) -> bytes:
    os.set_blocking(master, False)
    try:
        return os.read(master, 1 << 16)
    except BlockingIOError:
        return b""


def set_size(descriptor: int, columns: int, lines: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextmanager
def terminal(columns: int = 80, lines: int = 24) -> Iterator[Terminal]:
    try:
        master, slave = pty.openpty()
    except OSError as error:
        pytest.skip(f"There are no pseudo-terminals ({error}). Mount devpts at /dev/pts.")
    set_size(master, columns, lines)
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        yield Terminal(stream, master, columns, lines)
    os.close(master)


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


def hot_topics() -> ShownJob:
    return ShownJob("hot topics", "running", 1, Summarizer(hot_topics_plan()).summary(hot_topics_progress()))


def test_other_output_scrolls_above_the_docked_lines() -> None:
    with terminal(lines=8) as at:
        print("before", file=at.stream, flush=True)
        dock = Dock(at.stream)
        dock.show(1, ["first", "second"])
        assert at.screen == ["before", *[""] * 5, "first", "second"]
        at.write_as_another_process("".join(f"line {number}\n" for number in range(20)))
        dock.show(1, ["first", "changed"])
        assert at.screen == [*(f"line {number}" for number in range(15, 20)), "", "first", "changed"]
        dock.close()
        print("after", file=at.stream, flush=True)
        assert at.all_lines == ["before", *(f"line {number}" for number in range(20)), "after", "", ""]
        dock.show(1, ["too late"])  # by a thread of a job that has not ended
        assert at.scrolls_as_a_whole
        assert "too late" not in at.screen


def test_cursor_at_the_bottom_and_within_a_line_loses_nothing() -> None:
    with terminal(lines=6) as at:
        at.write_as_another_process("".join(f"line {number}\n" for number in range(9)) + "unfinished")
        dock = Dock(at.stream)
        dock.show(1, ["docked"])
        at.write_as_another_process(" line\nnext")
        dock.show(1, [])
        assert at.all_lines[-7:] == [*(f"line {number}" for number in range(5, 9)), "unfinished line", "next", ""]


def test_several_owners_share_the_dock() -> None:
    with terminal(lines=12) as at:
        dock = Dock(at.stream)
        dock.show(1, ["a", "b"])
        dock.show(2, ["c"])
        assert at.screen[-3:] == ["a", "b", "c"]
        dock.show(1, [])
        assert at.screen[-1] == "c"
        assert "a" not in at.screen
        dock.show(2, [])
        assert at.screen == [""] * 12


def test_more_lines_than_the_terminal_has() -> None:
    with terminal(lines=9) as at:
        dock = Dock(at.stream)
        dock.show(1, [f"docked {number}" for number in range(30)])
        at.write_as_another_process("log\nlog\n")
        assert at.screen == ["log", "log", "", *(f"docked {number}" for number in range(6))]


def test_resized_terminal() -> None:
    with terminal(lines=10) as at:
        dock = Dock(at.stream)
        dock.show(1, ["one", "two"])
        for columns, lines in ((60, 6), (100, 20), (20, 4)):
            at.resize(columns, lines)
            dock.show(1, ["one", "two"][: dock.size.lines])
            at.write_as_another_process("log\n" * 30)
            dock.show(1, ["one", "two"][: dock.size.lines])
            docked = ["one", "two"][: dock.size.lines]
            assert at.screen[-len(docked) :] == docked
            assert at.screen.count("log") == lines - len(docked) - 1
        dock.close()
        assert at.scrolls_as_a_whole


def test_closed_terminal_is_ignored() -> None:
    with terminal() as at:
        dock = Dock(at.stream)
        dock.show(1, ["one"])
    dock.show(1, ["two"])
    dock.close()


def test_job_on_a_terminal_with_logs_of_another_process() -> None:
    with terminal(80, 24) as at:
        display = display_on(at.stream)
        assert isinstance(display, Docked)
        for number in range(40):
            at.write_as_another_process(f"WARN TaskSetManager: {number}\n")
            display.show(hot_topics())
            screen = at.screen
        assert screen[-8].startswith("── hot topics  ● running")
        assert "detector" in screen[-2]
        assert screen[:15] == [f"WARN TaskSetManager: {number}" for number in range(25, 40)]
        assert "cyan" in at.colours
        display.end(hot_topics())
        lines = [line for line in at.all_lines if line]
        assert lines == [f"WARN TaskSetManager: {number}" for number in range(40)]


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with terminal() as at:
        display_on(at.stream).show(hot_topics())
        assert "hot topics" in at.screen[-8]
        assert at.colours == {"default"}


def test_without_rich_there_is_one_line_and_one_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr("dsv2.views.terminal.displays._hinted", False)
    with terminal(60, 12) as at:
        for _ in range(2):
            display = display_on(at.stream)
            display.show(hot_topics())
            assert at.screen[-1] == "hot topics: micro-batch 8 in 2.9 s, 213,084 records read (8"
            display.end(hot_topics())
        assert [line for line in at.screen if line] == ["For a detailed view of the job: pip install 'dsv2[cli]'"]


@pytest.mark.parametrize(
    ("term", "size"), [("dumb", (80, 24)), ("", (80, 24)), ("xterm", (10, 24)), ("xterm", (80, 4))]
)
def test_lines_where_nothing_can_be_docked(term: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    with terminal(*size) as at:
        assert isinstance(display_on(at.stream), Lines)


def test_lines_in_a_file_every_few_seconds(tmp_path: Path) -> None:
    now = 100.0
    with (tmp_path / "log").open("w") as file:
        assert isinstance(display_on(file), Lines)
        display = Lines(file, lambda: now)
        job = hot_topics()
        for now in (100.0, 104.9, 105.0, 106.0, 111.0):  # noqa: B007 - the clock
            display.show(job)
        display.end(job)
    assert (tmp_path / "log").read_text().count("hot topics: micro-batch 8") == 1
    with (tmp_path / "log").open("w") as file:
        display = Lines(file, lambda: now)
        display.show(job)
        display.end(job)
    assert (tmp_path / "log").read_text() == ""  # a short job says nothing
    assert isinstance(display_on(file), Lines)
    for now in (200.0, 300.0):  # noqa: B007
        display.show(job)  # the file is closed
    display.end(job)


class Shows:
    """A display that a test waits for. ``error``: What goes wrong the first time."""

    def __init__(self, error: Exception | None = None) -> None:
        self.jobs: queue.SimpleQueue[ShownJob] = queue.SimpleQueue()
        self._error = error

    def show(self, job: ShownJob) -> None:
        self.jobs.put(job)
        if self._error is not None:
            raise self._error

    def end(self, job: ShownJob) -> None:
        self.jobs.put(job)


def test_view_is_refreshed_when_something_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(live_view, "_EVERY_SECONDS", 3_600.0)
    plan, display = steps_plan(), Shows()
    view = JobView(FakeJob(plan), plan, display)
    view.start()
    assert display.jobs.get(timeout=LONG).state == "running"
    view.stopping("soon")
    while display.jobs.get(timeout=LONG).note != "soon":
        pass
    view.end()
    assert display.jobs.get(timeout=LONG).note is None


def test_view_that_fails_does_not_disturb_the_program(caplog: pytest.LogCaptureFixture) -> None:
    plan, display = steps_plan(), Shows(RuntimeError("no cursor"))
    view = JobView(FakeJob(plan), plan, display)
    view.start()
    assert display.jobs.get(timeout=LONG).name == "many steps"
    view.end()
    assert "The live view of job 'many steps' ends because of an error." in caplog.text
    assert display.jobs.empty()


def test_listener_shows_a_job_until_it_ends() -> None:
    plan = steps_plan()
    job = FakeJob(plan, steps_progress)
    with terminal(100, 30) as at:
        view = LiveView(at.stream)
        view.on_started(job, plan)
        deadline = time.monotonic() + LONG
        while not any("many steps" in line for line in at.screen):
            assert time.monotonic() < deadline
        job.status = JobStatus.FINISHED
        view.on_ended(job)
        assert at.screen == [""] * 30
        view.on_ended(job)
