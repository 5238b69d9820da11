"""Loads the function that builds a pipeline, and calls it."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from dsv2.checks.tracebacks import user_frames
from dsv2.cli.configuration import Configuration
from dsv2.environment import ExecutionEnvironment, starts_refused
from dsv2.errors import ConfigurationError, Dsv2Error

PipelineFunction = Callable[..., object]
"""``function(env, **settings)``. A parameter ``spark`` receives the session."""

_SESSION = "spark"
_UNLESS_MAIN = "Call execute in a function, or below: if __name__ == '__main__':"


class UserCodeError(Dsv2Error):
    """An error in the user's module or function, with the user's lines."""


def load(target: str, configured: Sequence[str] = ()) -> PipelineFunction:
    """Import a pipeline function. Modules are also found in the current directory.

    Args:
        target: ``module:function``.
        configured: The names of the pipelines in the configuration file.

    Raises:
        ConfigurationError: There is no such function, or a name in the configuration file is a typing error.
        UserCodeError: The module raised an exception.
    """
    module_name, separator, path = target.partition(":")
    if not separator or not module_name or not path:
        raise ConfigurationError(
            f"{target!r} is not a pipeline. Write it as MODULE:FUNCTION, such as shop.jobs:orders."
        )
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with starts_refused(f"dsv2 only imports {module_name}, and runs no job of it. {_UNLESS_MAIN}"):
            found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _user_error(error) from error
        raise ConfigurationError(
            f"There is no module {error.name!r}, neither in {os.getcwd()} nor where Python looks for modules."
        ) from error
    except Exception as error:
        raise _user_error(error) from error
    for name in configured:
        _check_configured(name, found, is_configured=target in configured)
    found = _attribute(found, path)
    if not callable(found):
        raise ConfigurationError(f"{target} is not a function, but {type(found).__name__}.")
    if not _parameters(found):
        raise ConfigurationError(f"{target} must take the environment: def {path}(env: ExecutionEnvironment) -> None")
    function: PipelineFunction = found
    return function


def _attribute(module: Any, path: str) -> Any:
    found = module
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigurationError(f"{found.__name__} has no function {name!r}.{_functions_in(found)}")
        found = getattr(found, name)
    return found


def _check_configured(pipeline: str, module: Any, *, is_configured: bool) -> None:
    """Check a name in the configuration file: that of a function in the module, or of a pipeline elsewhere.

    A name elsewhere may belong to another machine, unless the pipeline that runs is not configured at all.
    """
    module_name, separator, path = pipeline.partition(":")
    try:
        if not separator or not module_name or not path:
            raise ConfigurationError("Write it as MODULE:FUNCTION.")
        if module_name == module.__name__:
            _attribute(module, path)
        elif not is_configured and find_spec(module_name.partition(".")[0]) is None:
            raise ConfigurationError(f"There is no module {module_name!r}.")
    except ConfigurationError as error:
        raise ConfigurationError(f"The configuration file has a table [pipelines.{pipeline!r}]: {error}") from error


def takes_session(function: PipelineFunction) -> bool:
    """Return whether the function has a parameter for the Spark session."""
    return _SESSION in inspect.signature(function).parameters


def build(
    function: PipelineFunction, env: ExecutionEnvironment, configuration: Configuration, session: object | None
) -> None:
    """Call a pipeline function with the settings of the configuration.

    Args:
        function: The function.
        env: The environment.
        configuration: The configuration.
        session: The Spark session for a function that takes one.

    Raises:
        ConfigurationError: A setting is unknown, missing or invalid, or the function has executed the pipeline.
        UserCodeError: The function raised an exception.
    """
    if configuration.parallelism is not None:
        env.set_parallelism(configuration.parallelism)
    env.set_execution_mode(configuration.mode)
    given = dict(_converted(function, configuration))
    if takes_session(function):
        given[_SESSION] = session
    try:
        with starts_refused("The function must only build the pipeline. Remove execute from it."):
            function(env, **given)
    except Exception as error:
        raise _user_error(error) from error


def _converted(function: PipelineFunction, configuration: Configuration) -> Iterator[tuple[str, object]]:
    """The settings as arguments of the types that the function declares."""
    _, *parameters = inspect.signature(function).parameters.values()
    named = {one.name: one for one in parameters if one.kind is not one.VAR_KEYWORD and one.name != _SESSION}
    others = next((one for one in parameters if one.kind is one.VAR_KEYWORD), None)
    types = _types_of(function)
    for name, value in configuration.settings.items():
        parameter = named.get(name, others)
        if parameter is None:
            if name not in configuration.own_settings:
                continue
            listed = ", ".join(named) or "none"
            raise ConfigurationError(f"{configuration.target} has no setting {name!r}. Its settings: {listed}.")
        yield name, _as_type(value, types.get(parameter.name), f"{name}={value}")
    missing = [
        one.name for one in named.values() if one.default is one.empty and one.name not in configuration.settings
    ]
    if missing:
        options = " ".join(f"--set {name}=..." for name in missing)
        raise ConfigurationError(f"{configuration.target} needs more settings: {options}")


def _types_of(function: PipelineFunction) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that exists only for type checkers
        return {}


def _as_type(value: object, kind: Any, setting: str) -> object:
    if kind is None or kind is Any:
        return value
    if kind in (Path, Path | None) and isinstance(value, str):
        return Path(value)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"The setting {setting} is invalid: {error}.") from error
    except TypeError as error:
        raise ConfigurationError(f"The setting {setting} cannot be given: its type is {kind!r}.") from error


def _parameters(function: PipelineFunction) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function; none for built-in functions that do not tell them."""
    try:
        return inspect.signature(function).parameters
    except ValueError:
        return {}


def _functions_in(module: object) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == vars(module).get("__name__") and not name.startswith("_")
    ]
    return f" It has: {', '.join(names)}." if names else ""


def _user_error(error: Exception) -> UserCodeError:
    """The error of the user's code: what it is, and where, without frames of Python's import system."""
    text = f"{type(error).__name__}: {error}" if isinstance(error, Dsv2Error) else _as_python_prints(error)
    return UserCodeError(f"{text}\n{user_frames(error)}".rstrip())


def _as_python_prints(error: Exception) -> str:
    return "".join(traceback.format_exception_only(error)).rstrip()
