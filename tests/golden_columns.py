"""Keyed state in columns as bytes: states, panes and timers in blobs and in pages, and the manifest of their job.

``python -m tests.golden_columns`` records them in ``tests/golden/columns_VERSION.json``, once for each format version.
"""

from __future__ import annotations
