"""Decisions about sessions of Spark Connect, without a server."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from dsv2 import CollectSink, ExecutionEnvironment
from dsv2.errors import ConfigurationError
from dsv2.savepoint import bootstrap
from dsv2.sources import DataFrameSource
from runtime_spark import create_savepoint
from runtime_spark.platform.connect import is_connect, shared_folder


class Reader:
    """Reads files of another machine, whose root is ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, path: str) -> Reader:
        self.lines = (self.root / path.lstrip("/")).read_text().splitlines()
        return self

    def collect(self) -> list[tuple[str]]:
        return [(line,) for line in self.lines]


class Session:
    """A session whose server sees ``root`` as the root of its disk."""

    version = "4.3.0"

    def __init__(self, root: Path = Path("/")) -> None:
        self.read = Reader(root)
        self.session_id = str(uuid4())


Session.__module__ = "pyspark.sql.connect.session"


class Own(Session):
    """A session of a platform, which is a subclass."""


def test_sessions_are_told_apart() -> None:
    assert is_connect(Session())
    assert is_connect(Own())
    assert not is_connect(object())


def test_streaming_dataframe_is_refused_in_streaming_jobs(tmp_path: Path) -> None:
    session: Any = Session()
    env = ExecutionEnvironment.get_instance(spark=session)
    source: DataFrameSource[Any] = DataFrameSource(SimpleNamespace(isStreaming=True), dict)
    env.from_source(source).with_uid("in").to_sink(CollectSink()).with_uid("out")
    with pytest.raises(ConfigurationError, match=r"is a streaming DataFrame\. On Spark Connect nothing says how many"):
        env.execute("job", checkpoint_location=tmp_path / "checkpoint")
    assert list(tmp_path.iterdir()) == []


def test_streaming_jobs_need_spark_4_2(tmp_path: Path) -> None:
    session: Any = Session()
    session.version = "4.1.4"
    env = ExecutionEnvironment.get_instance(spark=session)
    env.from_collection([1]).with_uid("in").to_sink(CollectSink()).with_uid("out")
    with pytest.raises(ConfigurationError, match=r"Spark Connect has Spark 4\.1\.4\. There, such jobs need Spark 4\.2"):
        env.execute("job", checkpoint_location=tmp_path / "checkpoint")
    assert list(tmp_path.iterdir()) == []


def test_savepoints_are_neither_taken_nor_written(tmp_path: Path) -> None:
    session: Any = Session()
    with pytest.raises(ConfigurationError, match=r"create_savepoint reads and writes files on the driver, to which"):
        create_savepoint(tmp_path / "checkpoint", tmp_path / "savepoint", spark=session)
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection([1]).with_uid("in").to_sink(CollectSink()).with_uid("out")
    with pytest.raises(ConfigurationError, match=r"SavepointEditor.write reads and writes files on the driver"):
        bootstrap(env.build_plan()).write(tmp_path / "savepoint", spark=session)
    assert list(tmp_path.iterdir()) == []


def test_folder_that_the_server_sees(tmp_path: Path) -> None:
    session: Any = Session()
    assert shared_folder(session, f"{tmp_path}/new/").path == f"{tmp_path}/new"
    assert list((tmp_path / "new").iterdir()) == []


def test_folder_that_the_server_does_not_see(tmp_path: Path) -> None:
    session: Any = Session(tmp_path)
    with pytest.raises(ConfigurationError, match=r"does not see the files of this program in .* choose a folder that"):
        shared_folder(session, f"{tmp_path}/new")


def test_folder_with_the_same_name_on_the_server(tmp_path: Path) -> None:
    class Another(Reader):
        def text(self, path: str) -> Reader:
            self.lines = ["another file"]
            return self

    session: Any = Session()
    session.read = Another(tmp_path)
    with pytest.raises(ConfigurationError, match="does not see the files"):
        shared_folder(session, f"{tmp_path}/new")


def test_other_file_system_is_refused() -> None:
    session: Any = Session()
    with pytest.raises(ConfigurationError, match=r"s3a://bucket/x is not on the local disk. On Spark Connect, choose"):
        shared_folder(session, "s3a://bucket/x")
