"""Hot topics with dsv2 and its peers: a larger form of ``examples.hot_topics`` (see ``benchmarks/jobs/hot_topics.py``).

Equivalent to ``./run bench suite hot_topics``, with the same options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("hot_topics", __doc__, None))
