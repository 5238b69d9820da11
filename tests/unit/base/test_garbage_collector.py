"""The thresholds of the garbage collector while records are processed."""

from __future__ import annotations

import gc

from dsv2.base.garbage_collector import frozen_modules, patient_collector


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


def test_garbage_of_jobs_that_overlap_is_collected() -> None:
    class Node:
        def __init__(self) -> None:
            self.self = self

    gc.collect()
    with frozen_modules():
        assert gc.get_freeze_count()
        Node()
        with frozen_modules():
            assert gc.collect() >= 1
    assert not gc.get_freeze_count()
