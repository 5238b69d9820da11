"""The examples on the local runtime. Each result is compared with one computed in another way."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from dsv2 import RuntimeExecutionMode
from dsv2.local import LocalRuntime
from examples import (
    end_of_day,
    exchange_rates,
    flight_delays,
    flight_scores,
    flight_weather,
    grades,
    model_switching,
    news_clicks,
    sales,
    user_completeness,
    windowed_sales,
    word_count,
)
from tests.conformance.harness import Program, Setting, run_programs
from tests.example_programs import EXAMPLES, EndOfDay, FlightDelays, FlightWeather
from tests.oracles.flights import YEAR

SETTINGS = [
    Setting(1),
    Setting(3),
    Setting(1, 100, seed=1),
    Setting(3, 70, seed=2),
    Setting(2, mode=RuntimeExecutionMode.BATCH),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_finds_the_answer(example: Program, setting: Setting, tmp_path: Path) -> None:
    batches = () if setting.batch is None else (setting.batch,)
    runtime = LocalRuntime(seed=setting.seed, batches=batches, checks=setting.checks)
    example.check(run_programs([example], setting, runtime, tmp_path)[example.name])


@pytest.mark.nightly
@pytest.mark.parametrize(
    "example", [EndOfDay(YEAR), FlightDelays(YEAR), FlightWeather(YEAR)], ids=lambda example: example.name
)
def test_flights_of_the_whole_year(example: Program, tmp_path: Path) -> None:
    example.check(run_programs([example], Setting(2), LocalRuntime(), tmp_path)[example.name])


PROGRAMS: dict[str, tuple[Callable[[Sequence[str]], int], list[str]]] = {
    "word_count": (word_count.main, ["117 results for 73 words", "to "]),
    "news_clicks": (news_clicks.main, ["20 news items"]),
    "sales": (sales.main, ["2024-01-01 01:00  kettle"]),
    "windowed_sales": (windowed_sales.main, ["2024-01-01 00:00  2024-01-01 01:00  kettle"]),
    "grades": (grades.main, ["Ada       1     88"]),
    "model_switching": (model_switching.main, ["65    146  fast"]),
    "user_completeness": (user_completeness.main, ["60 users", "user 00"]),
    "exchange_rates": (exchange_rates.main, ["GBP       2,932.50", "XTS       unknown"]),
    "end_of_day": (end_of_day.main, ["2013-01-02  "]),
    "flight_delays": (flight_delays.main, ["carrier"]),
    "flight_weather": (flight_weather.main, ["EWR"]),
    "flight_scores": (flight_scores.main, ["carrier", "delay at takeoff"]),
}


@pytest.fixture
def few_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs read a week instead of the year, or half a day instead of a month."""
    some = {month: flight_scores.takeoffs(month)[:400] for month in (1, 2)}
    monkeypatch.setattr(flight_scores, "takeoffs", some.__getitem__)
    week = {airport: end_of_day.flights_from(airport)[:2_000] for airport in end_of_day.AIRPORTS}
    monkeypatch.setattr(end_of_day, "flights_from", week.__getitem__)
    for module, table in (
        (flight_delays, "flights_by_takeoff"),
        (flight_weather, "flights_by_schedule"),
        (flight_weather, "observations"),
    ):
        rows = getattr(module, table)()
        monkeypatch.setattr(module, table, partial(operator.getitem, rows, slice(len(rows) // 52)))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("few_flights")
def test_program_output(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main, said = PROGRAMS[name]
    assert main(["--mode", "local"]) == 0
    output = capsys.readouterr().out
    for text in said:
        assert text in output


def test_words_of_files_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "monday.txt").write_text("to be or not\n", encoding="utf-8")
    (tmp_path / "tuesday.txt").write_text("to be\n", encoding="utf-8")
    assert word_count.main(["--mode", "local", "--files", str(tmp_path)]) == 0
    assert "6 results for 4 words" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["0", "-1", "two", "1000"])
def test_invalid_parallelism_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        grades.main(["--mode", "local", "--parallelism", wrong])
    assert f"argument --parallelism: must be a number from 1 to 64, got {wrong!r}" in capsys.readouterr().err
