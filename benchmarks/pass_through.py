"""Pass-through with dsv2 and its peers (see ``benchmarks/jobs/pass_through.py``).

Equivalent to ``./run bench suite pass_through``, with the same options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("pass_through", __doc__, None))
