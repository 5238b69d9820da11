"""A running count per key with dsv2 and its peers (see ``benchmarks/jobs/running_count.py``).

Equivalent to ``./run bench suite running_count``, with the same options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("running_count", __doc__, None))
