"""Runs a job on the local runtime in a process of its own: ``python -m storms.common.launch_locally MODULE FOLDER``."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from pathlib import Path

from dsv2.local.workers import process
from storms.common.disk import Disk
from storms.common.kill_points import Kill, Whose, limit_segments

__all__ = ("arm_worker", "main")


def main(module: str, folder: str, *arguments: str) -> None:
    """Call the module's ``run(None, folder, *arguments)``."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    run = import_module(module).run
    if (kill := Kill.ordered(Path(folder))) is not None:
        arming = f"from {__spec__.name} import arm_worker; arm_worker({folder!r}); "
        process._PROGRAM = process._PROGRAM.replace("from dsv2", f"{arming}from dsv2", 1)
        kill.arm()
    run(None, folder, *arguments)


def arm_worker(folder: str) -> None:
    """Called by each worker process when it begins. One of them is killed, if that is ordered."""
    limit_segments()
    kill = Kill.ordered(Path(folder), Whose.WORKER)
    if kill is None or not kill.power:
        Disk.joined(Path(folder))
    if kill is not None:
        kill.arm()


if __name__ == "__main__":
    main(*sys.argv[1:])
