"""Normalization and comparison of paths, local or on another file system."""

from __future__ import annotations

import os
import posixpath
import re
from urllib.parse import urlsplit

_USER_AND_PASSWORD = re.compile(r"(?<=://).*:.*(?=@)", re.DOTALL)


def normalized(path: str) -> str:
    """The canonical form of a path: without ``.``, ``..`` and double slashes, and without links if it is local."""
    parts = urlsplit(path)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        rest = path.partition(":")[2]
        head = f"//{parts.netloc}" if rest.startswith("//") else ""
        return f"{parts.scheme}:{head}{posixpath.normpath('/' + rest[len(head) :].strip('/'))}"
    local = path.partition(":")[2] if parts.scheme == "file" else path
    if parts.scheme == "file" and local.startswith("//"):
        local = local[2:].removeprefix("localhost")
    return os.path.realpath(local)


def contains(folder: str, other: str) -> bool:
    """Return whether ``other`` is below ``folder``. Both must be ``normalized``."""
    return other.startswith(folder.rstrip("/") + "/")


def without_password(path: str) -> str:
    """Return a path with the user and the password in it replaced, to be stored or shown."""
    return _USER_AND_PASSWORD.sub("***", path)
