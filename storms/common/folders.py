"""Temporary folders."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ("scratch_folder",)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a folder that is removed at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="dsv2-storm-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
