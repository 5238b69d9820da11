"""Unsupported versions of Spark are refused before anything else fails because of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import dataclass
from typing import Any, cast

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.errors import ConfigurationError
from dsv2.jobs.handle import RunOptions
from dsv2.sinks import CollectSink
from runtime_spark import SparkRuntime
from runtime_spark.platform.versions import SUPPORTED, check_spark
from tests import ROOT

OLD_PYSPARK = """
import sys
import pyspark
pyspark.__version__ = "3.5.6"
sys.modules["pyspark.sql.datasource"] = None  # 3.5 has no such module
from dsv2 import ExecutionEnvironment
from dsv2.errors import ConfigurationError
try:
    ExecutionEnvironment.get_instance(spark=object()).load_runtime()
except ConfigurationError as error:
    print(error)
"""


@dataclass
class Session:
    version: str


@pytest.mark.parametrize("version", ["4.1.4", "4.2.0", "4.2.1", "4.3.0", "4.3.7-vendor-2", "4.3.0.dev1"])
def test_supported_version(version: str) -> None:
    check_spark(Session(version))


@pytest.mark.parametrize("version", ["3.5.6", "4.0.0", "4.10.0", "4.20.0", "4.4.0", "5.0.0", "unknown"])
def test_unsupported_version(version: str) -> None:
    with pytest.raises(ConfigurationError, match=f"this session has version {version}; dsv2 supports 4.1, 4.2 and 4.3"):
        check_spark(Session(version))


def test_old_pyspark_is_refused_before_missing_imports_fail() -> None:
    said = subprocess.check_output([sys.executable, "-c", OLD_PYSPARK], cwd=ROOT, text=True)
    assert said.startswith("The installed PySpark has version 3.5.6; dsv2 supports 4.1, 4.2 and 4.3.")


def test_missing_runtime_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "runtime_spark", None)
    with pytest.raises(ConfigurationError, match=r"The spark runtime cannot be loaded .*pip install 'dsv2\[spark\]'"):
        ExecutionEnvironment.get_instance(spark=object()).load_runtime()


def test_unsupported_spark_is_refused_before_the_job_starts() -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match=r"The Spark of this session has version 4\.0\.2"):
        SparkRuntime(cast(Any, Session("4.0.2"))).start(env.build_plan(), RunOptions())


def test_spark_extra_matches_the_supported_versions() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (major, first), (_, last) = SUPPORTED[0], SUPPORTED[-1]
    assert f"pyspark>={major}.{first},<{major}.{last + 1}" in extras["spark"]
