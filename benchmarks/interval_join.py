"""An event-time interval join with dsv2 and its peers (see ``benchmarks/jobs/interval_join.py``).

Equivalent to ``./run bench suite interval_join``, with the same options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("interval_join", __doc__, None))
