"""Decisions of a start on Spark, from the files of its checkpoint and savepoint."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.record import SinkRecord
from dsv2.checkpoint.start import Action
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError
from dsv2.jobs.handle import OnChange, RunOptions
from runtime_spark.frames.layout import Layout
from runtime_spark.savepoint.state_entries import _location
from runtime_spark.start import migration, restoration
from runtime_spark.start.migration import ChosenGeneration, choose_generation
from runtime_spark.start.restoration import restoration_of
from tests.unit.runtime_spark.checkpoint.test_generation import Checkpoint, plan_of

PLAN = plan_of()
NO_SESSION: Any = None


def test_dead_letters_wait_until_a_micro_batch_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Checkpoint(tmp_path)
    for batch_id in range(2):
        checkpoint.begin(batch_id, None, None, None, {"position": 1})
    checkpoint.commit(0)
    monkeypatch.setattr(migration, "pending_in", lambda *_: SimpleNamespace(letters=["0-0"]))
    chosen = choose_generation(NO_SESSION, checkpoint.folder, PLAN, Layout.of(PLAN), RunOptions(), None)
    assert (chosen.generation, chosen.start and chosen.start.action) == (chosen.current, Action.CONTINUE)
    assert "a micro-batch is not complete, so dead letters wait for the next start" in caplog.text


def test_start_of_an_unchanged_program_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, reads = Checkpoint(tmp_path), Counter[str]()
    checkpoint.begin(0, None, None, None, {"position": 1})
    checkpoint.commit(0)
    checkpoint.report(0, {})
    read = LocalFolder.read

    def counted(folder: LocalFolder, name: str) -> bytes | None:
        reads[name] += 1
        return read(folder, name)

    monkeypatch.setattr(LocalFolder, "read", counted)
    monkeypatch.setattr(migration, "pending_in", lambda *_: None)
    chosen = choose_generation(NO_SESSION, checkpoint.folder, PLAN, Layout.of(PLAN), RunOptions(), None)
    chosen.generation.check_savepoint()
    own = ("dsv2/job/0.json", "dsv2/reports/0.json", "dsv2/states/0.json", "dsv2/logs.json")
    assert reads == dict.fromkeys((*own, "metadata", "commits/0", "offsets/0"), 1)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Savepoints are not taken. Returns the folders in which they would be."""
    taken: list[str] = []
    monkeypatch.setattr(migration, "pending_in", lambda *_: None)
    monkeypatch.setattr(migration, "lease_on", lambda *_: nullcontext())
    monkeypatch.setattr(migration, "take_savepoint", lambda spark, checkpoint, folder, *_: taken.append(folder.path))
    return taken


def chosen_by(folder: LocalFolder, parallelism: int, **options: Any) -> ChosenGeneration:
    plan = plan_of(parallelism)
    return choose_generation(NO_SESSION, folder, plan, Layout.of(plan), RunOptions(**options), None)


@pytest.mark.parametrize(
    ("parallelism", "continues_in", "takes_savepoint"),
    [(3, "generations/1", False), (2, "", False), (4, "generations/1", True)],
    ids=["go on", "go back", "change again"],
)
def test_generation_whose_first_micro_batch_has_failed(
    tmp_path: Path, without_spark: list[str], parallelism: int, continues_in: str, takes_savepoint: bool
) -> None:
    current, begun = Checkpoint(tmp_path), Checkpoint(tmp_path / "generations/1", 3)
    for generation in (current, begun):
        generation.begin(0, None, None, None, {"position": 1})
    current.commit(0)
    begun.write(sinks={"old": SinkRecord("FileSink", "out", True, "file:/out")})
    chosen = chosen_by(current.folder, parallelism)
    assert chosen.path_below_root == (f"/{continues_in}" if continues_in else "")
    assert chosen.continues != takes_savepoint
    assert without_spark == ([f"{tmp_path}/generations/1/savepoint"] if takes_savepoint else [])
    assert begun.folder.numbers("offsets") == ([] if takes_savepoint else [0]), "the earlier attempt is discarded"
    assert list(chosen.discarded_folders) == ([] if parallelism == 3 else [("old", "file:/out")])


def test_changed_program_migrates(tmp_path: Path, without_spark: list[str], caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.begin(0, None, None, None, {"position": 1})
    checkpoint.commit(0)
    refused = chosen_by(checkpoint.folder, 3, on_change=OnChange.REFUSE)
    assert isinstance(refused.start and refused.start.refusal, IncompatibleCheckpointError)
    assert without_spark == []
    assert chosen_by(checkpoint.folder, 3).path_below_root == "/generations/1"
    assert without_spark == [f"{tmp_path}/generations/1/savepoint"]
    assert "its parallelism was 2 and is now 3" in caplog.text


def test_first_micro_batch_starts_over_with_another_program(tmp_path: Path, without_spark: list[str]) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.begin(0, None, None, None, {"position": 1})
    assert chosen_by(checkpoint.folder, 3).starts_over
    assert not chosen_by(checkpoint.folder, 2).starts_over
    refused = chosen_by(checkpoint.folder, 3, on_change=OnChange.REFUSE)
    assert refused.start is not None
    assert refused.start.action is Action.REFUSE
    assert without_spark == []


def test_savepoint_that_was_replaced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, path = Checkpoint(tmp_path / "c"), str(tmp_path / "s")
    checkpoint.write(savepoint=path, savepoint_id="first")
    checkpoint.begin(0, None, None, None, {"position": 1})
    monkeypatch.setattr(migration, "pending_in", lambda *_: None)
    chosen = choose_generation(NO_SESSION, checkpoint.folder, PLAN, Layout.of(PLAN), RunOptions(), None)
    monkeypatch.setattr(restoration, "open_folder", lambda spark, path: LocalFolder(path))
    second = SimpleNamespace(info=SimpleNamespace(savepoint_id="second"))
    monkeypatch.setattr(restoration, "SavepointReader", lambda folder: second)
    monkeypatch.setattr(restoration, "check_digests", lambda *_: None)
    with pytest.raises(ConfigurationError, match=rf"began from another savepoint in the folder {path}\."):
        restoration_of(NO_SESSION, chosen, PLAN, RunOptions(), "job")


@pytest.mark.parametrize("master", ["yarn", "local[2]", None])
def test_paths_that_the_state_reader_finds(master: str | None) -> None:
    session: Any = SimpleNamespace(conf={"spark.master": master})
    assert _location(session, LocalFolder("/data/a-b_c.d")) == "/data/a-b_c.d"


@pytest.mark.parametrize("master", ["yarn", None])
def test_path_that_the_state_reader_does_not_find_is_refused(master: str | None) -> None:
    session: Any = SimpleNamespace(conf={"spark.master": master})
    with pytest.raises(ConfigurationError, match="cannot read the state in /data/a b, because the path has characters"):
        _location(session, LocalFolder("/data/a b"))


def test_path_is_refused_on_a_local_server_of_spark_connect() -> None:
    class Session(SimpleNamespace):
        __module__ = "pyspark.sql.connect.session"

    session: Any = Session(conf={"spark.master": "local[2]"})
    with pytest.raises(
        ConfigurationError, match=r"cannot read the state in /data/a b, .* Move the checkpoint to another"
    ):
        _location(session, LocalFolder("/data/a b"))
