"""The parts of a checkpoint as bytes: a job's state, its manifest and the offsets of its sources.

``python -m tests.golden_format`` records them in ``tests/golden/format_VERSION.json``, once for each format version.
"""

from __future__ import annotations

from tests import ROOT

GOLDEN = ROOT / "tests" / "golden"
