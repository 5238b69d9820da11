"""Runs a job in a separate process: ``python -m storms.common.launch MODULE FOLDER ARGUMENTS``.

The module is imported rather than run, because workers find its classes by the name of the module.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module

from storms.common.session import new_cluster_session, new_session

__all__ = ("main",)


def main(module: str, folder: str, *arguments: str, master: str | None = None) -> None:
    """Call the module's ``run(spark, folder, *arguments)`` with a new session.

    ``master``: The cluster on which it runs. None (default): this machine.
    """
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    run = import_module(module).run
    spark = new_session(folder) if master is None else new_cluster_session(folder, master)
    run(spark, folder, *arguments)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
