"""Savepoints of all versions of the format can be read and continued."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dsv2 import JobHandle
from dsv2.checkpoint.record import RECORD_VERSION
from dsv2.savepoint import Savepoint
from tests.golden_savepoints import GOLDEN, READ, RECORDS, SPANS, run

VERSIONS = range(1, RECORD_VERSION + 1)


@pytest.fixture(scope="module")
def whole() -> tuple[JobHandle, list[Any]]:
    return run(checks=False)


@pytest.fixture(scope="module")
def begun() -> tuple[JobHandle, list[Any]]:
    return run(stop=READ, checks=False)


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("version", VERSIONS)
def test_job_continues_from_a_kept_savepoint(
    version: int, parallelism: int, whole: tuple[JobHandle, list[Any]], begun: tuple[JobHandle, list[Any]]
) -> None:
    job, everything = whole
    _, before = begun
    continued, after = run(savepoint=GOLDEN / f"savepoint_{version}", parallelism=parallelism)
    assert Counter(map(repr, before + after)) == Counter(map(repr, everything))
    letters = [one.progress.operators["picky"].counters["errors_dead_lettered"] for one in (job, continued)]
    assert letters == [len(RECORDS[::11])] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_kept_savepoint_is_readable_as_tables(version: int) -> None:
    savepoint = Savepoint.open(GOLDEN / f"savepoint_{version}")
    savepoint.verify()
    assert savepoint.positions["numbers"] == {"position": READ}
    assert savepoint.positions["rules"] == {"position": 1, "ended": True}
    (ended, reader) = savepoint.positions["spans"]["readers"]
    assert [ended["ended"] is None, reader["ended"] is None] == [False, True]
    assert all(0 < split["at"]["position"] < SPANS[split["at"]["name"]] for split in reader["splits"])
    assert savepoint.info.holding == ["gathers"]
    assert savepoint.sinks["sums out"].batch_id == savepoint.origin.batch_id
    rows = savepoint.state("sums", "sum").to_arrow().to_pylist()
    read = RECORDS[:READ]
    assert {row["key"]: row["value"] for row in rows} == {
        key: {"total": sum(read[key::7]), "last": read[key::7][-1]} for key in range(7)
    }
    recent = savepoint.state("sums", "recent").to_arrow().to_pydict()
    assert sorted(number for numbers in recent["value"] for number in numbers) == [*read]
    timers = savepoint.timers("sums").to_arrow().to_pydict()
    assert Counter(timers["state"]) == {"processing": 7, "expiry": 7}
    rules = savepoint.state("ruled", "rules").to_arrow().to_pydict()
    assert rules == {"subtask": [0, 1], "value": [[("rule", 3)]] * 2}


@pytest.mark.parametrize("version", VERSIONS)
def test_contents_of_a_kept_savepoint_are_readable(version: int) -> None:
    savepoint = Savepoint.open(GOLDEN / f"savepoint_{version}")

    def rows_of(uid: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = savepoint.contents(uid).to_arrow().to_pylist()
        return rows

    last = {key: RECORDS[:READ][key::7][-1] for key in range(7)}
    assert {(row["key"], row["end"], row["value"]) for row in rows_of("sessions")} == {
        (key, number + 8, number) for key, number in last.items()
    }
    assert {row["key"]: row["value"] for row in rows_of("temporal join") if row["side"] == "second"} == last
    waiting = sorted(row["value"] for row in rows_of("temporal join") if row["side"] == "first")
    assert waiting == [*RECORDS[:READ]]
    assert all(row["timestamp"] == row["value"] for row in rows_of("interval join"))
    open_window = savepoint.state("window states", "records").to_arrow().to_pydict()
    assert sorted(number for numbers in open_window["value"] for number in numbers) == [*range(50, READ)]
    for uid in ("windows", "count windows", "fired", "purged", "window join"):
        assert rows_of(uid)
