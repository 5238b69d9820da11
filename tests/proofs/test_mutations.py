"""The explorer finds faults: it is run against code that is broken in one place."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.proofs.bounds import BOUNDED
from tests.proofs.cases import cases
from tests.proofs.explorer import Case, CounterexampleError, explore
from tests.proofs.invariants import INVARIANTS
from tests.proofs.mutations import MUTATIONS, Mutation


def case_named(name: str) -> Case:
    """The case, with longer frames if the name ends with their length."""
    name, _, longest = name.partition(", frames of ")
    case = next(planned for planned in cases(BOUNDED) if planned.name == name).case()
    return dataclasses.replace(case, longest=int(longest or case.longest))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.fault)
def test_fault_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(monkeypatch)
    with pytest.raises(CounterexampleError) as caught:
        explore(case_named(mutation.case), model=mutation.invariant == "model")
    assert caught.value.invariant == mutation.invariant
    assert re.search(r"\n  1\. (the clock moves, and )?channel \d sends ", str(caught.value))


def test_every_invariant_can_fail() -> None:
    assert {mutation.invariant for mutation in MUTATIONS} == set(INVARIANTS)
