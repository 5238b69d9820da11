"""Paths of folders that Python opens itself, without Spark."""

from __future__ import annotations

import os
import re
from os import PathLike, fspath

from dsv2.base.folders import LocalFolder
from dsv2.errors import ConfigurationError

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/")
_FILE = re.compile(r"file:(?://[^/]*)?(/.*)", re.DOTALL)


def is_remote(path: str | PathLike[str]) -> bool:
    """Return whether ``path`` is a URI of another file system than the local disk."""
    scheme = _SCHEME.match(fspath(path))
    return scheme is not None and scheme[1] != "file"


def local_folder(path: str | PathLike[str], remedy: str, *, durable: bool = False) -> LocalFolder:
    """Open a folder on the local disk.

    Args:
        path: A path, or a URI with the scheme ``file``, which is not unescaped, as in Spark.
        remedy: How to use a path on another file system, for the error.
        durable: Whether files are forced to the disk when they are written.

    Raises:
        ConfigurationError: ``path`` is on another file system.
    """
    if is_remote(path):
        raise ConfigurationError(f"{fspath(path)} is not on the local disk. {remedy}")
    uri = _FILE.fullmatch(fspath(path))
    folder = os.path.abspath(path if uri is None else uri[1])
    existing = folder
    while not os.path.exists(existing) and existing != os.path.dirname(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise ConfigurationError(f"{fspath(path)} is no folder, because {existing} is a file.")
    return LocalFolder(folder, durable=durable)
