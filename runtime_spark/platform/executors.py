"""Checks that the processes of a cluster have what they import, before a job starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

from dsv2.errors import ConfigurationError
from dsv2.version import __version__

_PROJECT = ("dsv2", "runtime_spark")
_PACKAGES = {
    "cloudpickle": "cloudpickle",
    "msgspec": "msgspec",
    "typing_extensions": "typing-extensions",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
}
"""The imports of tasks, with the names of the packages."""
_MAP_STATE = {"google.protobuf": "protobuf"}
_PAGE = "See docs/cluster.md."

_Found: TypeAlias = tuple[str, str, list[str]]
"""A Python, its version of dsv2 (empty if there is none), and the modules that it lacks."""

_CHECKED: set[tuple[str, bool]] = set()  # applications, with and without map state


def check_executors(spark: SparkSession, *, map_state: bool = False) -> None:
    """Run a task that imports what tasks need, once in an application. Workers of a local session are not checked.

    Wheels of ``--py-files`` are put on the import path of the workers first: Spark ships them, but does not do that.

    Args:
        spark: The session.
        map_state: Whether the job keeps state in maps.

    Raises:
        ConfigurationError: The Python of an executor lacks packages, or has another version of dsv2.
    """
    context: Any = getattr(spark, "sparkContext", None)
    if context is None:
        return
    _include_wheels(context)
    if _is_local(context) or (context.applicationId, map_state) in _CHECKED:
        return
    packages = _PACKAGES | (_MAP_STATE if map_state else {})
    ((python, version, missing),) = context.parallelize([0], 1).map(_finder((*_PROJECT, *packages))).collect()
    if missing:
        raise ConfigurationError(_describe(python, missing, packages))
    if version != __version__:
        raise ConfigurationError(
            f"The Python of Spark's executors ({python}) has dsv2 {version}, and the driver has dsv2 "
            f"{__version__}. Install or ship the same version. {_PAGE}"
        )
    _CHECKED.add((context.applicationId, map_state))


def check_planners(spark: SparkSession) -> None:
    """Check that the driver's host has the Python with which Spark starts the planners of sources.

    Raises:
        ConfigurationError: It has not; it may be in an archive, which Spark unpacks on executors only.
    """
    context: Any = getattr(spark, "sparkContext", None)
    if context is None or _is_local(context):
        return
    python: str = context.pythonExec
    if os.sep not in python or os.path.exists(python):
        return
    if os.path.isabs(python):
        remedy = "Install it here too, or name one that all machines have with PYSPARK_PYTHON."
    else:
        folder = os.path.normpath(python).partition(os.sep)[0]
        remedy = (
            f"If it is in an archive (--archives), unpack that here too, in {os.getcwd()}: "
            f"mkdir {folder} && tar -xzf ARCHIVE -C {folder}."
        )
    raise ConfigurationError(
        f"There is no {python} on the driver's host, and Spark starts the planners of sources with it, there. {remedy} "
        f"{_PAGE}"
    )


def _is_local(context: Any) -> bool:
    return context.master == "local" or bool(context.master.startswith("local["))


def _include_wheels(context: Any) -> None:
    files = context.getConf().get("spark.submit.pyFiles", "").split(",")
    for wheel in (os.path.basename(file) for file in files if file.endswith(".whl")):
        if wheel not in context._python_includes:  # not public; addPyFile has a list of accepted suffixes
            context._python_includes.append(wheel)


def _describe(python: str, missing: Sequence[str], packages: dict[str, str]) -> str:
    ours = [module for module in missing if module in _PROJECT]
    others = [packages[module] for module in missing if module in packages]
    steps = []
    if ours:
        steps.append("Ship this project with --py-files (a zip file or the wheel).")
    if others:
        steps.append(f"Install there: pip install {' '.join(others)}.")
    return (
        f"The Python of Spark's executors ({python}) cannot import {', '.join(missing)}. {' '.join(steps)} Or ship a "
        f"whole environment with --archives, and set spark.pyspark.python to its Python. {_PAGE}"
    )


def _finder(modules: tuple[str, ...]) -> Any:
    def find(_: int) -> _Found:  # pickled by value: the executor may not have this module
        import importlib
        import platform
        import socket
        import sys

        missing = []
        for module in modules:
            try:
                importlib.import_module(module)
            except ImportError:
                missing.append(module)
        version = "" if "dsv2" in missing else importlib.import_module("dsv2.version").__version__
        return f"{platform.python_version()}, {sys.executable}, on {socket.gethostname()}", version, missing

    return find


def use_this_python(spark: SparkSession) -> None:
    """Let the Python workers of a local session run the Python of this program, instead of any ``python3``.

    Not if the user has set PYSPARK_PYTHON or ``spark.pyspark.python``; and not on a cluster, whose machines may not
    have this Python in the same place.
    """
    context: Any = getattr(spark, "sparkContext", None)
    if context is None or "PYSPARK_PYTHON" in os.environ or not sys.executable:
        return
    if context.master.startswith("local") and context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable
