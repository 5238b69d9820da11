"""Programs that run one after the other in one process, so that they share one JVM.

Starting a JVM and compiling Spark takes longer than the short form of a benchmark or of a storm. Each program still
creates and stops its own session.
"""

from __future__ import annotations
