"""Broadcast rules, by dsv2 and by its peers (see ``benchmarks/jobs/broadcast_rules.py``).

The same as ``./run bench suite broadcast_rules``, with all its options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("broadcast_rules", __doc__, None))
