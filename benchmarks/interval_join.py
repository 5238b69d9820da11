"""An interval join in event time, by dsv2 and by its peers (see ``benchmarks/jobs/interval_join.py``).

The same as ``./run bench suite interval_join``, with all its options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("interval_join", __doc__, None))
