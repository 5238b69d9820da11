"""Runs a job on the local runtime in a process of its own: ``python -m storms.common.launch_locally MODULE FOLDER``."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from pathlib import Path

from storms.common.kill_points import Kill

__all__ = ("main",)


def main(module: str, folder: str, *arguments: str) -> None:
    """Call the module's ``run(None, folder, *arguments)``."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    run = import_module(module).run
    kill = Kill.ordered(Path(folder))
    if kill is not None:
        kill.arm()
    run(None, folder, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
