"""Tumbling windows in event time, by dsv2 and by its peers (see ``benchmarks/jobs/windows.py``).

The same as ``./run bench suite windows``, with all its options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("windows", __doc__, None))
