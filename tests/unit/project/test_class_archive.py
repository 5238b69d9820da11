"""JVMs of tests use the archive of classes that was made for their Java, if there is one."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from components import class_archive
from components.class_archive import JVM_OPTIONS, jvm_options


@pytest.fixture(autouse=True)
def java_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the version of the Java in JAVA_HOME, and an environment without an archive."""
    home = tmp_path / "java"
    home.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    release = home / "release"
    release.write_text('IMPLEMENTOR="Debian"\nJAVA_RUNTIME_VERSION="17.0.15+6"\nJAVA_VERSION="17.0.15"\n')
    return release


def archive(folder: Path, java: str) -> Path:
    return folder / f"spark-{version('pyspark')}-java-{java}.jsa"


def test_archive_of_this_java_is_used(tmp_path: Path) -> None:
    assert jvm_options() == JVM_OPTIONS
    archive(tmp_path, "21.0.1+12").touch()
    assert jvm_options() == JVM_OPTIONS
    own = archive(tmp_path, "17.0.15+6")
    own.touch()
    assert jvm_options().startswith(f"{JVM_OPTIONS} -XX:SharedArchiveFile={own} ")


def test_unknown_java_has_none(java_release: Path) -> None:
    java_release.unlink()
    assert jvm_options() == JVM_OPTIONS


def test_path_with_a_space_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my projects"
    folder.mkdir()
    archive(folder, "17.0.15+6").touch()
    monkeypatch.setattr(sys, "prefix", str(folder))
    assert jvm_options() == JVM_OPTIONS


def test_archive_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = archive(tmp_path, "17.0.15+6").with_suffix(".partial")
    jobs: list[str] = []

    def run(command: list[str], env: dict[str, str], **options: object) -> None:
        jobs.append(command[2])
        assert env["SPARK_SUBMIT_OPTS"].endswith(f"-XX:ArchiveClassesAtExit={partial}")
        partial.touch()

    monkeypatch.setattr(subprocess, "run", run)
    class_archive.main()
    assert jvm_options() != JVM_OPTIONS
    class_archive.main()
    assert jobs == ["examples.hot_topics"]


def test_without_an_archive_jvms_start_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the job or the JVM that should write it has failed."""
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: None)
    class_archive.main()
    assert jvm_options() == JVM_OPTIONS
