"""The thresholds of the garbage collector while records are processed."""

from __future__ import annotations

import gc

from dsv2.base.garbage_collector import patient_collector


def test_last_context_restores_the_thresholds() -> None:
    """Contexts of several threads may end in any order."""
    before, first, second = gc.get_threshold(), patient_collector(), patient_collector()
    first.__enter__()
    patient = gc.get_threshold()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == patient
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before
    assert patient[0] > before[0]
