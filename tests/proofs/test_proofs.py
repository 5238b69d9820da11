"""Every state that a gate, an operator and two operators can reach, within bounds that take less than a minute.

``./run storm proofs`` explores the larger bounds.
"""

from __future__ import annotations

import pytest

from tests.proofs.cases import BOUNDED, Planned, barrier_cases, chain_cases, expiry_cases, gate_cases, subtask_cases
from tests.proofs.explorer import explore


@pytest.mark.parametrize("planned", gate_cases(BOUNDED), ids=lambda planned: planned.name)
def test_gate(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize("planned", subtask_cases(BOUNDED), ids=lambda planned: planned.name)
def test_operator(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize("planned", chain_cases(BOUNDED), ids=lambda planned: planned.name)
def test_two_operators(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize("planned", barrier_cases(BOUNDED), ids=lambda planned: planned.name)
def test_barriers(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize("planned", expiry_cases(BOUNDED), ids=lambda planned: planned.name)
def test_expiring_watermarks(planned: Planned) -> None:
    explore(planned.case())
