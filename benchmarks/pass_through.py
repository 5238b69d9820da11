"""Pass-through, by dsv2 and by its peers (see ``benchmarks/jobs/pass_through.py``).

The same as ``./run bench suite pass_through``, with all its options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("pass_through", __doc__, None))
