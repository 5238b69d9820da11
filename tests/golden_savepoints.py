"""The job whose savepoint is kept for every version of the format, and the program that writes it.

After the version of the format has increased: ``./run python -m tests.golden_savepoints``. Earlier savepoints stay.
"""

from __future__ import annotations

from tests import ROOT

GOLDEN = ROOT / "tests" / "golden"
