"""Tumbling event-time windows with dsv2 and its peers (see ``benchmarks/jobs/windows.py``).

Equivalent to ``./run bench suite windows``, with the same options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("windows", __doc__, None))
