"""Cases of barriers, and of watermarks that expire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial

from dsv2.watermark import WatermarkDeclaration, WatermarkHandlingStrategy, new_builder
from dsv2.watermark.declaration import WhenExceeded
from tests.proofs.barrier_facts import BarrierFacts
from tests.proofs.barrier_model import BARRIER, Limits
from tests.proofs.bounds import WIDE, Bounds
from tests.proofs.components import barrier_component, subtask_component
from tests.proofs.events import letters
from tests.proofs.expiring import ExpiringFacts
from tests.proofs.explorer import Case, Planned
from tests.proofs.plans import chain_plan, declared, name_of, operator_plan, values_of
from tests.proofs.rules import FOLDS, Rule
from tests.proofs.systems import TICK_MS, SubtaskSystem

_LIFETIME = 2
"""Of values that expire, in moves of the clock."""
_LIMITS = (
    Limits(),
    Limits(ticks=1, proceeds=True),
    Limits(records=1, proceeds=True),
    Limits(ticks=1),
    Limits(records=1),
)


def barrier_cases(bounds: Bounds) -> list[Planned]:
    """Cases of operators that receive barriers."""
    return [
        Planned(
            f"barriers, inputs of {' and '.join(map(str, inputs))} channels, {_limit(limits)}{_frames(longest)}",
            partial(_barrier_case, inputs, limits, ids, longest, bounds),
        )
        for inputs, ids, longest in bounds.barriers
        for limits in (_LIMITS if _has_limits(inputs, longest, bounds) else _LIMITS[:1])
    ] + [
        Planned(
            f"barriers, two operators, {subtasks} subtasks of {channels} channels, no limit",
            partial(_barrier_chain_case, subtasks, channels, ids),
        )
        for subtasks, channels, ids in bounds.barrier_chains
    ]


def _has_limits(inputs: tuple[int, ...], longest: int, bounds: Bounds) -> bool:
    """Return whether there are cases with limits, which have many more states."""
    if not bounds.mixed:
        return len(inputs) == 1
    return sum(inputs) < WIDE and (longest == 1 or inputs == (1,))


def _barrier_case(inputs: tuple[int, ...], limits: Limits, ids: int, longest: int, bounds: Bounds, name: str) -> Case:
    system = SubtaskSystem(operator_plan([_barrier(limits)], inputs), "f")
    return Case(
        name,
        [barrier_component(system, inputs, limits)],
        None,
        {},
        letters(((BARRIER, value) for value in range(1, ids + 1)), idle=bounds.mixed or limits == Limits()),
        longest,
        held=2 if limits.records is None else limits.records + 2,
        timed=limits.ticks is not None,
        new_facts=lambda channels, state: BarrierFacts(channels, limits, state),
    )


def _barrier_chain_case(subtasks: int, channels: int, ids: int, name: str) -> Case:
    """The status of channels changes if a subtask has only one.

    A subtask passes on an id that its idle channels have not sent. If one of them becomes active again, the next
    operator cannot know that it is behind that id.
    """
    no_limit = Limits()
    plan = chain_plan([_barrier(no_limit)], subtasks, channels)
    return Case(
        name,
        [barrier_component(SubtaskSystem(plan, "first", number), (channels,), no_limit) for number in range(subtasks)],
        barrier_component(SubtaskSystem(plan, "second"), (subtasks,), no_limit),
        {},
        letters(((BARRIER, value) for value in range(1, ids + 1)), idle=channels == 1),
        held=2,
        new_facts=lambda channels, state: BarrierFacts(channels, no_limit, state),
    )


def expiry_cases(bounds: Bounds) -> list[Planned]:
    """Cases of operators that receive watermarks that expire."""
    return [
        Planned(
            f"expiring, inputs of {' and '.join(map(str, inputs))} channels, {name_of(rule)}{_frames(longest)}",
            partial(_expiry_case, inputs, rule, longest, bounds),
        )
        for inputs, longest in bounds.expiring
        for rule in _expiring_rules(bounds, _folds(inputs, longest, bounds))
        if rule.across == (len(inputs) == 2) or (bounds.mixed and not rule.across)
    ]


def _folds(inputs: tuple[int, ...], longest: int, bounds: Bounds) -> Sequence[str]:
    if not bounds.mixed:
        return ("max",)
    if sum(inputs) * longest >= WIDE:
        return ("max",)
    return bounds.folds if len(inputs) == 1 else bounds.wide_folds


def _frames(longest: int) -> str:
    """Return the part of a case's name for the length of frames."""
    return f", frames of {longest}" if longest > 1 else ""


def _expiring_rules(bounds: Bounds, folds: Sequence[str]) -> Iterator[Rule]:
    for fold in map(FOLDS.__getitem__, folds):
        if not fold.takes_last:
            yield Rule("w", fold, lifetime=_LIFETIME)
            if bounds.mixed:
                yield Rule("w", fold, wait=True, lifetime=_LIFETIME)
            if fold.is_idempotent:
                yield Rule("w", fold, wait=True, across=True, lifetime=_LIFETIME)


def _expiry_case(inputs: tuple[int, ...], rule: Rule, longest: int, bounds: Bounds, name: str) -> Case:
    forwards = rule.fold.is_idempotent
    strategy = WatermarkHandlingStrategy.FORWARD if forwards else WatermarkHandlingStrategy.IGNORE
    system = SubtaskSystem(operator_plan(declared([rule], strategy).values(), inputs), "f")
    return Case(
        name,
        [subtask_component(system, {"w": rule}, inputs, forwards=forwards)],
        None,
        {"w": rule},
        letters(values_of([rule], 2), idle=bounds.mixed and sum(inputs) < WIDE),
        longest,
        timed=True,
        new_facts=lambda channels, state: ExpiringFacts(rule, _LIFETIME, channels, state),
    )


def _barrier(limits: Limits) -> WatermarkDeclaration:
    then = WhenExceeded.PROCEED if limits.proceeds else WhenExceeded.FAIL
    timeout = None if limits.ticks is None else timedelta(milliseconds=limits.ticks * TICK_MS)
    start = new_builder(BARRIER).type_long()
    declaration: WatermarkDeclaration = start.barrier(
        timeout=timeout, max_records=limits.records, when_exceeded=then
    ).build()
    return declaration


def _limit(limits: Limits) -> str:
    if limits == Limits():
        return "no limit"
    waits = f"{limits.ticks} moves of the clock" if limits.ticks else f"{limits.records} records"
    return f"{waits}, then {'proceed' if limits.proceeds else 'fail'}"
