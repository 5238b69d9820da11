"""Runs a job on the local runtime in a separate process, which may kill itself: ``launch_locally MODULE FOLDER ...``.

The segments of its checkpoint are small, so that they are often begun, cleaned and deleted.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from pathlib import Path

from dsv2.local import page_log
from storms.common.kill_points import Kill

__all__ = ("main",)

_SEGMENT_BYTES = 20_000


def main(module: str, folder: str, *arguments: str) -> None:
    """Call the module's ``run(None, folder, *arguments)``."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    page_log._LEAST_SEGMENT = _SEGMENT_BYTES
    page_log._SPILLED_BYTES = page_log._LEAST_CLEANED = _SEGMENT_BYTES // 8
    run = import_module(module).run
    kill = Kill.ordered(Path(folder))
    if kill is not None:
        kill.arm()
    run(None, folder, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
