"""Deletes the state of micro-batches that were not committed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dsv2.base.folders import Folder

_VERSION = re.compile(r"\d+/\d+/\.?(\d+)[._][^/]*")  # of a file of a partition of a level


def discard_uncommitted_state(checkpoint: Folder, files: Iterable[str], first_batch: int) -> None:
    """Delete the state that micro-batches from ``first_batch`` on have written. The run that begins writes it again.

    An earlier attempt may have written different state, because the program has changed or not every subtask was
    called. Some of Spark's file managers never replace a file, so the earlier state would remain.

    ``files``: The names of the files in the folder ``state``.
    """
    for name in files:
        version = _VERSION.fullmatch(name)
        if version is not None and int(version.group(1)) > first_batch:  # micro-batch n writes version n + 1
            checkpoint.delete(f"state/{name}")
