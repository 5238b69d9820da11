"""Runs a job on a cluster: ``python -m storms.common.launch_on_cluster MASTER MODULE FOLDER ARGUMENTS``."""

from __future__ import annotations

import sys

from storms.common.launch import main

if __name__ == "__main__":
    main(*sys.argv[2:], master=sys.argv[1])
