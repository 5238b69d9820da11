"""Decisions of a start on Spark, from the files of its checkpoint and savepoint."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.start import Action
from dsv2.errors import ConfigurationError
from dsv2.jobs.handle import RunOptions
from runtime_spark.frames.layout import Layout
from runtime_spark.savepoint.state_entries import _location
from runtime_spark.start import migration, restoration
from runtime_spark.start.migration import choose_generation
from runtime_spark.start.restoration import restoration_of
from tests.unit.runtime_spark.checkpoint.test_savepoint_basis import Checkpoint, plan_of

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
    names = ("dsv2/job/0.json", "dsv2/reports/0.json", "dsv2/states/0.json", "metadata", "commits/0", "offsets/0")
    assert reads == dict.fromkeys(names, 1)


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
