"""Sessions of Spark Connect: the driver is a server, and the program reaches it by the public interface only."""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from dsv2.base.folders import LocalFolder, literal_path
from dsv2.checks.paths import local_folder
from dsv2.errors import ConfigurationError
from dsv2.graph import Plan
from dsv2.model.context import RuntimeExecutionMode
from dsv2.sources import DataFrameSource
from runtime_spark.platform.available_now import is_announced

_SEEN: set[tuple[str, str]] = set()
"""The folders that the server of a session sees."""
_CLASSIC = 'a classic session: SparkSession.builder.master(...), or spark-submit without "--remote"'


def is_connect(spark: object) -> bool:
    """Return whether ``spark`` is a session of Spark Connect, which is a class of its own."""
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(spark).__mro__)


def check_runs_on(spark: SparkSession, plan: Plan) -> None:
    """Check that ``spark`` can run ``plan``, if it is a session of Spark Connect.

    Raises:
        ConfigurationError: It cannot.
    """
    if not is_connect(spark) or plan.mode is not RuntimeExecutionMode.STREAMING:
        return
    if not is_announced(spark):
        raise ConfigurationError(
            f"{plan.job_name!r} is a STREAMING job, and the server of Spark Connect has Spark {spark.version}. There, "
            f'such jobs need Spark 4.2 or newer. Use {_CLASSIC}; or env.set_execution_mode("batch").'
        )
    for operator in plan.operators:
        source = operator.body
        if isinstance(source, DataFrameSource) and getattr(source.dataframe, "isStreaming", False):
            raise ConfigurationError(
                f"The source {operator}, defined at {operator.location}, is a streaming DataFrame. On Spark Connect "
                f"nothing says how many streams it reads (DataFrame._jdf is missing), and so which offsets in the "
                f"checkpoint are its own. Use {_CLASSIC}; or read the data with a source of dsv2."
            )


def check_classic(spark: object, what: str) -> None:
    """Check that ``spark`` is a classic session, for work on the files of a checkpoint or savepoint.

    Args:
        spark: What the user passed as the session.
        what: What needs it, for the error.

    Raises:
        ConfigurationError: It is not.
    """
    if is_connect(spark):
        raise ConfigurationError(
            f"{what} reads and writes files on the driver, to which Spark Connect has no access. Use {_CLASSIC}."
        )
    if not isinstance(spark, SparkSession):
        raise ConfigurationError(f"spark=... must be a SparkSession, got {type(spark).__name__}.")


def check_passages_on(spark: SparkSession, job_name: str) -> None:
    """Raise ``ConfigurationError`` if ``spark`` cannot send records through DataFrames."""
    if is_connect(spark):
        raise ConfigurationError(
            f"{job_name!r} uses through_dataframe, which requires internals of Spark that Spark Connect does not have. "
            f"Use {_CLASSIC}."
        )


def shared_folder(spark: SparkSession, path: str) -> LocalFolder:
    """Open a folder that this program and the server see at the same path; no other one can be used.

    Raises:
        ConfigurationError: ``path`` is on another file system, or the server does not see the files of this program.
    """
    remedy = (
        f"On Spark Connect, choose a folder that this program and the server have mounted at the same path, or use "
        f"{_CLASSIC}. The output of a BATCH job can go to any file system by to_dataframe(...).write."
    )
    folder = local_folder(path, remedy)
    if not _sees(spark, path, folder.path):
        raise ConfigurationError(
            f"The server of Spark Connect does not see the files of this program in {path}. {remedy}"
        )
    return folder


def is_server_process() -> bool:
    """Return whether this is a Python process that a server of Spark Connect has started, on its own host."""
    return "SPARK_CONNECT_LOCAL_URL" in os.environ


def _sees(spark: SparkSession, path: str, local: str) -> bool:
    """Return whether the tasks of the server read a file that this program writes. Asks the server once."""
    place = str(spark.session_id), local  # type: ignore[attr-defined]  # only on Spark Connect
    if place not in _SEEN and (is_server_process() or _reads_probe(spark, path, local)):
        _SEEN.add(place)
    return place in _SEEN


def _reads_probe(spark: SparkSession, path: str, local: str) -> bool:
    folder, name, content = LocalFolder(local), f"dsv2-probe-{uuid4()}", str(uuid4())
    folder.write(name, content.encode())
    try:
        rows: Any = spark.read.text(literal_path(f"{path.rstrip('/')}/{name}")).collect()
    except Exception:  # many of them mean that there is no such file
        return False
    finally:
        folder.delete(name)
    return [row[0] for row in rows] == [content]
