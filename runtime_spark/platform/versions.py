"""Checks the version of Spark. ``tests/spark/test_spark_facts.py`` passes with the supported versions."""

from __future__ import annotations

import re
from typing import Protocol

import pyspark

from dsv2.errors import ConfigurationError

SUPPORTED = ((4, 1), (4, 2), (4, 3))
"""Major and minor versions, oldest first. The extra ``spark`` in pyproject.toml allows the same versions."""

AVAILABLE_NOW_SINCE = (4, 2)
"""The version since which Spark announces the trigger *available now* to sources in Python."""


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


def version_of(version: str) -> tuple[int, int]:
    """Return the major and minor version in ``version``; zeros if there are none."""
    parts = re.match(r"(\d+)\.(\d+)", version)
    return (0, 0) if parts is None else (int(parts[1]), int(parts[2]))


def _check(version: str, which: str) -> None:
    if version_of(version) not in SUPPORTED:
        *others, last = (f"{major}.{minor}" for major, minor in SUPPORTED)
        supported = f"{', '.join(others)} and {last}"
        raise ConfigurationError(
            f"{which} has version {version}; dsv2 supports {supported}. "
            f"Install a supported version with: pip install 'dsv2[spark]'"
        )
