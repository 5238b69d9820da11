"""Files in the format of their suffix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import TypeVar

from dsv2.errors import ConfigurationError

F = TypeVar("F", bound=Enum)

_SUFFIXES = {".txt": "text", ".mmd": "mermaid", ".mermaid": "mermaid", ".svg": "svg", ".json": "json"}


def save(path: str | PathLike[str], renderers: Mapping[F, object], render: Callable[[F], str]) -> None:
    """Write what ``render`` returns for the format of the suffix of ``path``.

    Raises:
        ConfigurationError: The suffix is not that of one of ``renderers``.
    """
    file, by_name = Path(path), {format.value: format for format in renderers}
    suffixes = {suffix: by_name[name] for suffix, name in _SUFFIXES.items() if name in by_name}
    if file.suffix not in suffixes:
        raise ConfigurationError(f"{file} has no known format. Its suffix must be one of: {', '.join(suffixes)}.")
    file.write_text(render(suffixes[file.suffix]), encoding="utf-8")
