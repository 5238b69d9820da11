"""A running count per key, by dsv2 and by its peers (see ``benchmarks/jobs/running_count.py``).

The same as ``./run bench suite running_count``, with all its options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("running_count", __doc__, None))
