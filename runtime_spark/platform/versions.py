"""Checks the version of Spark. ``tests/spark/test_spark_facts.py`` passes with the supported versions."""

from __future__ import annotations

import re
from typing import Protocol

import pyspark

from dsv2.errors import ConfigurationError

SUPPORTED = ((4, 2), (4, 3))
"""Major and minor versions, oldest first. The extra ``spark`` in pyproject.toml allows the same versions."""


class _Session(Protocol):
    @property
    def version(self) -> str: ...


def check_pyspark() -> None:
    """Check the installed PySpark. Raises ``ConfigurationError`` if it is not supported."""
    _check(pyspark.__version__, "The installed PySpark")


def check_spark(session: _Session) -> None:
    """Check the Spark of ``session``, which ``SPARK_HOME`` or a cluster may choose.

    Raises:
        ConfigurationError: The version is not supported.
    """
    _check(session.version, "The Spark of this session")


def _check(version: str, which: str) -> None:
    parts = re.match(r"(\d+)\.(\d+)", version)
    if parts is None or (int(parts[1]), int(parts[2])) not in SUPPORTED:
        supported = " and ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
        raise ConfigurationError(
            f"{which} has version {version}; dsv2 supports {supported}. "
            f"Install a supported version with: pip install 'dsv2[spark]'"
        )
