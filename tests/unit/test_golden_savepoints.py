"""Savepoints of all versions of the format can be read and continued."""

from __future__ import annotations

from collections import Counter

import pytest

from dsv2.savepoint import Savepoint
from dsv2.savepoint.metadata import SAVEPOINT_VERSION
from tests.golden_savepoints import GOLDEN, READ, RECORDS, run

VERSIONS = range(1, SAVEPOINT_VERSION + 1)


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("version", VERSIONS)
def test_job_continues_from_a_kept_savepoint(version: int, parallelism: int) -> None:
    _, everything = run()
    _, before = run(stop=READ)
    _, after = run(savepoint=GOLDEN / f"savepoint_{version}", parallelism=parallelism)
    assert Counter(map(repr, before + after)) == Counter(map(repr, everything))


@pytest.mark.parametrize("version", VERSIONS)
def test_kept_savepoint_is_readable_as_tables(version: int) -> None:
    savepoint = Savepoint.open(GOLDEN / f"savepoint_{version}")
    savepoint.verify()
    assert savepoint.positions == {"numbers": {"position": READ}}
    rows = savepoint.state("sums", "sum").to_arrow().to_pylist()
    read = RECORDS[:READ]
    assert {row["key"]: row["value"] for row in rows} == {
        key: {"total": sum(read[key::7]), "last": read[key::7][-1]} for key in range(7)
    }
    recent = savepoint.state("sums", "recent").to_arrow().to_pydict()
    assert sorted(number for numbers in recent["value"] for number in numbers) == [*read]
    timers = savepoint.timers("sums").to_arrow().to_pydict()
    assert Counter(timers["state"]) == {"processing": 7, "expiry": 7}
