"""Failed micro-batches and records to skip in a checkpoint, over restarts and crashes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.base.folders import Folder
from dsv2.checkpoint.failed_batch import Unblocking
from dsv2.checks.paths import local_folder
from dsv2.errors import CorruptDataError
from dsv2.graph import Plan
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource

ASKED: dict[str, frozenset[tuple[Any, Any]]] = {"in": frozenset({(3, 1042)})}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Folder:
    return local_folder(str(tmp_path), "")


def start(checkpoint: Folder, first_batch: int, asked: Any = None) -> Unblocking:
    """The start of a run."""
    unblocking = Unblocking(checkpoint, asked or {}, first_batch)
    unblocking.write()
    return unblocking


def test_job_without_failures_has_no_file(checkpoint: Folder, tmp_path: Path) -> None:
    start(checkpoint, 0).note_skipped(0, {"in": frozenset()})
    assert list(tmp_path.rglob("*.json")) == []


def test_request_holds_until_its_micro_batch_is_complete(checkpoint: Folder) -> None:
    assert start(checkpoint, 4, ASKED).skips == ASKED
    assert start(checkpoint, 4).skips == ASKED  # without the argument
    start(checkpoint, 4).note_skipped(4, {})  # another micro-batch
    start(checkpoint, 5).note_skipped(5, ASKED)
    assert start(checkpoint, 5).skips == ASKED  # killed before the commit
    assert start(checkpoint, 6).skips == {}
    assert start(checkpoint, 6, ASKED).skips == {}  # the argument may stay


def test_further_requests_are_added(checkpoint: Folder) -> None:
    start(checkpoint, 0, ASKED)
    more = {"in": frozenset({(3, 1042), (0, "x")}), "other": frozenset({(0, 1)})}
    assert start(checkpoint, 0, more).skips == more
    start(checkpoint, 0).note_skipped(0, {"in": frozenset({(0, "x")})})
    assert start(checkpoint, 1).skips == {**ASKED, "other": frozenset({(0, 1)})}


def test_repeated_micro_batch_is_known_to_have_failed(checkpoint: Folder) -> None:
    run = start(checkpoint, 2)
    assert not run.failed_before
    run.note_failure(7)
    assert not start(checkpoint, 6).failed_before
    assert start(checkpoint, 7, ASKED).failed_before
    again = start(checkpoint, 7)
    assert again.failed_before
    assert again.skips == ASKED
    assert not start(checkpoint, 8).failed_before


def test_request_without_positions_withdraws_earlier_ones(checkpoint: Folder) -> None:
    both = {**ASKED, "other": frozenset({(0, 1)})}
    start(checkpoint, 0, both)
    withdrawn: dict[str, Any] = {"in": frozenset()}
    assert start(checkpoint, 0, withdrawn).skips == {"other": both["other"]}
    assert start(checkpoint, 0).skips == {"other": both["other"]}


def test_request_that_a_micro_batch_has_followed_is_not_withdrawn(checkpoint: Folder) -> None:
    start(checkpoint, 0, ASKED).note_skipped(0, ASKED)
    withdrawn: dict[str, Any] = {"in": frozenset()}
    assert start(checkpoint, 0, withdrawn).skips == ASKED, "sinks may have the micro-batch without the record"
    assert start(checkpoint, 1, withdrawn).skips == {}


def plan_with_source() -> Plan:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_source(DataGeneratorSource(int, count=1)).with_uid("in").to_sink(CollectSink())
    return env.build_plan()


def test_warning_is_given_once_for_a_request(checkpoint: Folder) -> None:
    plan = plan_with_source()

    def warnings_of(run: Unblocking) -> int:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run.warn_of_read(plan, lambda source, at: at.offset == 7)
            run.warn_of_missed(plan)
            run.warn_of_missed(plan)
        return len(caught)

    two = {"in": frozenset({(0, 7), (0, 8)})}
    assert warnings_of(start(checkpoint, 0, two)) == 2, "one of them is read, the other one is missed"
    assert warnings_of(start(checkpoint, 1, two)) == 0
    more = {"in": frozenset({(0, 7), (0, 9)})}
    assert warnings_of(start(checkpoint, 1, more)) == 1
    start(checkpoint, 1, {"in": frozenset()})
    assert warnings_of(start(checkpoint, 1, two)) == 2, "a request that is made again is a new one"


@pytest.mark.parametrize("content", [b"", b"{}", b'{"failed": 1, "skips": [["in", 3]]}', b'{"failed": 1, "skips": 5}'])
def test_damaged_file_is_named(checkpoint: Folder, content: bytes) -> None:
    checkpoint.write("dsv2/unblocking.json", content)
    with pytest.raises(CorruptDataError, match=r"unblocking.json is damaged: .* or delete it"):
        start(checkpoint, 0)
