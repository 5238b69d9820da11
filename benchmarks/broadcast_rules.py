"""Broadcast rules with dsv2 and its peers (see ``benchmarks/jobs/broadcast_rules.py``).

Equivalent to ``./run bench suite broadcast_rules``, with the same options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("broadcast_rules", __doc__, None))
