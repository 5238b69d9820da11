"""Every state that a gate, an operator and two operators can reach, within small bounds.

``./run storm proofs`` explores the larger bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.proofs.bounds import BOUNDED
from tests.proofs.cases import chain_cases, gate_cases, subtask_cases
from tests.proofs.event_time_cases import event_time_cases
from tests.proofs.explorer import Planned, explore
from tests.proofs.function_cases import function_cases
from tests.proofs.keyed_cases import keyed_cases
from tests.proofs.timed_cases import barrier_cases, expiry_cases


def _without(cases: Iterable[Planned], *texts: str) -> list[Any]:
    """Mark the cases whose names contain one of ``texts`` as nightly. Faults are still looked for in all of them."""
    return [
        pytest.param(one, marks=pytest.mark.nightly) if any(text in one.name for text in texts) else one
        for one in cases
    ]


@pytest.mark.parametrize("planned", gate_cases(BOUNDED), ids=lambda planned: planned.name)
def test_gate(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize("planned", subtask_cases(BOUNDED), ids=lambda planned: planned.name)
def test_operator(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize("planned", chain_cases(BOUNDED), ids=lambda planned: planned.name)
def test_two_operators(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize("planned", event_time_cases(BOUNDED), ids=lambda planned: planned.name)
def test_event_time(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize(
    "planned", _without(barrier_cases(BOUNDED), " and ", "two operators"), ids=lambda planned: planned.name
)
def test_barriers(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize("planned", _without(expiry_cases(BOUNDED), " and "), ids=lambda planned: planned.name)
def test_expiring_watermarks(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize("planned", _without(function_cases(BOUNDED), "emits"), ids=lambda planned: planned.name)
def test_functions_with_watermarks_of_their_own(planned: Planned) -> None:
    explore(planned.case())


@pytest.mark.parametrize("planned", _without(keyed_cases(BOUNDED), "2 channels"), ids=lambda planned: planned.name)
def test_keys(planned: Planned) -> None:
    explore(planned.case())
