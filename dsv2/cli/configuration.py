"""The configuration of ``dsv2 run``, ``explain`` and ``check``: options, environment variables and a TOML file.

An option of the command line takes precedence over an environment variable, that over the table of the pipeline in the
file, and that over the rest of the file. ``settings`` and ``spark`` are merged, name by name.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from dsv2.cli.command import add_settings, add_state_key, settings_of, values_of
from dsv2.errors import ConfigurationError

_FILE = "dsv2.toml"
_PREFIX = "DSV2_"

_RuntimeName: TypeAlias = Literal["spark", "local"]
_LogFormat: TypeAlias = Literal["text", "json"]
_Mode: TypeAlias = Literal["streaming", "batch", "automatic"]


class _Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings that a place may have, with their defaults."""

    runtime: _RuntimeName = "spark"
    checks: bool = False
    restarts: Annotated[int, msgspec.Meta(ge=0)] = 0
    memory_budget: Annotated[int, msgspec.Meta(ge=0)] = 256
    processes: Annotated[int, msgspec.Meta(ge=1)] = 1
    checkpoint: str | None = None
    savepoint: str | None = None
    parallelism: Annotated[int, msgspec.Meta(ge=1)] | None = None
    mode: _Mode = "streaming"
    name: str = ""
    available_now: bool = False
    state_key: str | None = None
    dashboard: int | str | None = None
    dashboard_token: str | None = None
    allow_actions: bool = False
    log_format: _LogFormat = "text"
    settings: Mapping[str, Any] = {}
    spark: Mapping[str, str | int | float | bool] = {}


_SIMPLE = tuple(name for name in _Settings.__struct_fields__ if name not in ("settings", "spark"))
_Layer: TypeAlias = Mapping[str, Any]  # the settings that one place has


class _ConfigurationFile(_Settings, frozen=True):
    """A TOML file. ``pipelines``: What differs for single ones, by ``module:function``."""

    pipelines: dict[str, _Settings] = {}


S = TypeVar("S", bound=_Settings)


class Configuration(_Settings, frozen=True, kw_only=True):
    """The settings with which a pipeline is built and run.

    Attributes:
        target: ``module:function``.
        runtime: The name of the runtime.
        checks: Whether the local runtime makes its checks, which are for tests.
        restarts: How often the local runtime restarts the job within ten minutes after failures.
        memory_budget: The memory in MB for state that the local runtime keeps decoded.
        processes: The number of worker processes of the local runtime. 1: there are none.
        checkpoint: The ``checkpoint_location``, or None.
        savepoint: The savepoint to start from, or None.
        parallelism: The default parallelism, or None for that of the environment.
        mode: The execution mode.
        name: The name of the job.
        available_now: Whether the job stops when it has read what is available.
        state_key: The file with the key that signs the state, or None.
        dashboard: The address of a dashboard, ``PORT`` or ``HOST:PORT``, or None.
        dashboard_token: The token that it requires, or None.
        allow_actions: Whether the job can be changed from there.
        log_format: The format of standard error.
        settings: The arguments of the function: text, or values of the TOML file.
        own_settings: The names of those that are given for this pipeline, which the function must have. Others are
            given for all pipelines, and functions without them ignore them.
        spark: Settings of the Spark session.
        pipelines: The names of the pipelines that the file configures.
    """

    target: str
    spark: Mapping[str, str]
    own_settings: frozenset[str]
    pipelines: tuple[str, ...]


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the pipeline and the options that configure it to a command."""
    add = command.add_argument
    add("pipeline", metavar="MODULE:FUNCTION", help="the function that builds the pipeline, such as shop.jobs:orders")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="an argument of the function; may be repeated")
    add("--runtime", choices=("spark", "local"), help="local: in this process, without Spark (default: spark)")
    add("--parallelism", type=int, metavar="N", help="the parallelism of operators that do not set their own")
    add("--mode", choices=("streaming", "batch", "automatic"), help="the execution mode (default: streaming)")
    add("--name", help="the name of the job (default: the name of the function)")
    add("--config", metavar="FILE", help=f"a TOML file (default: {_FILE} in the current directory, if it exists)")
    add_settings(command)


def add_run_options(command: argparse.ArgumentParser) -> None:
    """Add the options with which a job starts."""
    add = command.add_argument
    add("--checkpoint", metavar="PATH", help="the checkpoint_location, for streaming jobs on Spark")
    add("--savepoint", metavar="PATH", help="a savepoint to start from")
    add(
        "--dashboard",
        metavar="[HOST:]PORT",
        help="show the job as a web page at this port (0: a free one), with /metrics and the probes /live and /ready",
    )
    add(
        "--allow-actions",
        action="store_true",
        default=None,
        help="with --dashboard: those with its token can stop and change the job",
    )
    add(
        "--checks", action="store_true", default=None, help="with --runtime local: make its checks, which are for tests"
    )
    add(
        "--restarts",
        type=int,
        metavar="N",
        help="with --runtime local: restart a job that fails from its checkpoint, up to N times in ten minutes",
    )
    add(
        "--memory-budget",
        type=int,
        metavar="MB",
        help="with --runtime local: the memory for keyed state that stays decoded between micro-batches (default: 256)",
    )
    add("--processes", type=int, metavar="N", help="with --runtime local: the worker processes (default: 1)")
    add("--log-format", choices=("text", "json"), help="json: standard error has one JSON object in each line")
    add("--available-now", action="store_true", default=None, help="read what is available now, then stop")
    add_state_key(command)


def configuration_of(arguments: argparse.Namespace) -> Configuration:
    """Combine the options of a command with the environment and the file.

    Raises:
        ConfigurationError: A value is invalid, or the file cannot be read.
    """
    target = arguments.pipeline
    file, of_pipelines = _file(arguments.config)
    options, own = _options(arguments), of_pipelines.get(target, {})
    layers = [options, _environment(), own, file]

    chosen: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    spark: dict[str, str] = {}
    for layer in reversed(layers):
        chosen |= {name: value for name, value in layer.items() if name in _SIMPLE}
        settings |= layer.get("settings", {})
        spark |= {name: _spark_text(value) for name, value in layer.get("spark", {}).items()}
    chosen["name"] = chosen.get("name") or target.rpartition(":")[2].replace("_", " ")
    if chosen.get("runtime") == "local":
        chosen["checkpoint"] = _checkpoint_of_local_job(layers)
    own_settings = frozenset((*options["settings"], *own.get("settings", ())))
    pipelines = tuple(of_pipelines)
    return Configuration(
        target=target, settings=settings, own_settings=own_settings, spark=spark, pipelines=pipelines, **chosen
    )


def _checkpoint_of_local_job(layers: Sequence[_Layer]) -> str | None:
    """Return the checkpoint. One of a layer below that which chooses the local runtime belongs to a job on Spark."""
    for layer in layers:
        if "checkpoint" in layer or "runtime" in layer:
            return layer.get("checkpoint")
    return None


def _options(arguments: argparse.Namespace) -> _Layer:
    given = {name: getattr(arguments, name, None) for name in _Settings.__struct_fields__}
    options = {name: value for name, value in given.items() if value is not None}
    settings = {"settings": values_of("--set", arguments.set), "spark": settings_of(arguments)}
    return _checked(options | settings, "the command line")


def _environment() -> _Layer:
    """``DSV2_RUNTIME`` and so on, and ``DSV2_SET_NAME`` for the argument ``name``."""
    options = {name: text for name in _SIMPLE if (text := os.environ.get(f"{_PREFIX}{name.upper()}"))}
    start = f"{_PREFIX}SET_"
    settings = {name[len(start) :].lower(): text for name, text in os.environ.items() if name.startswith(start)}
    return _checked(options | {"settings": settings}, "the environment variables")


def _file(path: str | None) -> tuple[_Layer, Mapping[str, _Layer]]:
    """Return the settings in the file, and those of single pipelines in it."""
    chosen = path or os.environ.get(f"{_PREFIX}CONFIG")
    file = Path(chosen or _FILE)
    if chosen is None and not file.exists():
        return {}, {}
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"The configuration file {file} cannot be read: {error}") from error
    found = _converted(content, _ConfigurationFile, f"the configuration file {file}")
    return _given(found, content), {
        name: _given(own, content["pipelines"][name]) for name, own in found.pipelines.items()
    }


def _checked(values: Mapping[str, Any], where: str) -> _Layer:
    return _given(_converted(values, _Settings, where), values)


def _given(settings: _Settings, names: Iterable[str]) -> _Layer:
    return {name: getattr(settings, name) for name in names}


def _converted(values: Mapping[str, Any], kind: type[S], where: str) -> S:
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"In {where}: {error}") from error


def _spark_text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
