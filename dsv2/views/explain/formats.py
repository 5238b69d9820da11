"""Files in the format of their suffix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import TypeVar

from dsv2.errors import ConfigurationError

F = TypeVar("F", bound=Enum)


def save(path: str | PathLike[str], suffixes: Mapping[str, F], render: Callable[[F], str]) -> None:
    """Write what ``render`` returns for the format of the suffix of ``path``.

    Raises:
        ConfigurationError: The suffix is not one of ``suffixes``.
    """
    file = Path(path)
    if file.suffix not in suffixes:
        raise ConfigurationError(f"{file} has no known format. Its suffix must be one of: {', '.join(suffixes)}.")
    file.write_text(render(suffixes[file.suffix]), encoding="utf-8")
