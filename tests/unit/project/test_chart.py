"""The chart of the hot-topics example."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import hot_topics
from examples.chart import save_chart, span_text, text_chart

MINUTE, DAY = 60_000, 86_400_000

CHART = """\
4 ┤   █
  ┤   █
  ┤█  █
0 ┤█  █ █
  └──────
   1970-01-01 00:00"""


def test_bars_are_as_high_as_the_numbers() -> None:
    times = [0, 1, 3 * MINUTE, 3 * MINUTE, 3 * MINUTE, 4 * MINUTE - 1, 5 * MINUTE]
    assert "\n".join(text_chart(times, columns=6, height=4)) == CHART
    assert span_text(times, columns=6) == "minute"


def test_axis_shows_the_first_and_the_last_time() -> None:
    year = [day * DAY for day in range(365)]
    lines = text_chart(year)
    assert span_text(year) == "7 days"
    assert lines[-1].split("  ")[0].strip() == ""
    assert lines[-1].strip().startswith("1970-01-01 00:00")
    assert lines[-1].endswith("1971-01-07 00:00")


@given(st.lists(st.integers(-(10**13), 10**13), max_size=50), st.integers(2, 80), st.integers(1, 8))
def test_chart_has_its_size_and_shows_every_event(times: list[int], columns: int, height: int) -> None:
    lines = text_chart(times, columns=columns, height=height)
    assert bool(lines) == bool(times)
    if times:
        bars = [line.partition("┤")[2] for line in lines[:height]]
        assert max(map(len, bars)) <= columns
        assert any("█" in line for line in bars[:1])


def test_no_events_have_no_chart(capsys: pytest.CaptureFixture[str]) -> None:
    assert text_chart([]) == []
    assert hot_topics.main(["--mode", "local", "--tweets", "10"]) == 0
    assert "┤" not in capsys.readouterr().out


def test_hot_topics_prints_and_saves_the_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--mode", "local", "--tweets", "5000", "--threshold", "20", "--chart", str(tmp_path / "events.png")]
    assert hot_topics.main(arguments) == 0
    out = capsys.readouterr().out
    assert "Hot events per minute\n\n" in out
    assert "┤█" in out or "█" in out
    assert f"The chart is in {tmp_path}/events.png." in out
    assert (tmp_path / "events.png").read_bytes().startswith(b"\x89PNG")
    save_chart([], "Nothing", tmp_path / "none.svg")


def test_chart_as_a_file_requires_matplotlib(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert hot_topics.main(["--mode", "local", "--tweets", "10", "--chart", "events.png"]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], "--checkpoint {out}/checkpoint --output {out}/events"),
        (["--tweets", "9"], "--tweets 9 --checkpoint {out}/checkpoint --output {out}/events"),
        (["--checkpoint", "c"], "--checkpoint c --output c-events"),
        (["--checkpoint", "c d", "--output", "e"], "--checkpoint 'c d' --output e"),
    ],
)
def test_command_that_continues_hot_topics(given: list[str], added: str) -> None:
    command = hot_topics._command_to_continue(hot_topics._parse(given))
    assert command == f"./run hot-topics {added.format(out=hot_topics.OUT)}"
