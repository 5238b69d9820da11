"""Hot topics, by dsv2 and by its peers: the example of ``examples.hot_topics``, in larger (see ``benchmarks/jobs``).

The same as ``./run bench suite hot_topics``, with all its options.
"""

from __future__ import annotations

import sys

from benchmarks.suite import run_job

if __name__ == "__main__":
    sys.exit(run_job("hot_topics", __doc__, None))
