"""Cases of functions that take watermarks over, emit watermarks of their own, or are passed by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dsv2.watermark import WatermarkHandlingStrategy
from dsv2.watermark.declaration import WatermarkScope
from tests.proofs.behaviour import ECHO, OWN, Behaviour
from tests.proofs.bounds import Bounds
from tests.proofs.components import subtask_component
from tests.proofs.events import letters
from tests.proofs.explorer import Case, Planned
from tests.proofs.invariants import Judged
from tests.proofs.plans import chain_plan, declared, name_of, named, operator_plan, values_of
from tests.proofs.rules import FOLDS, Rule
from tests.proofs.systems import SubtaskSystem


class _Function(NamedTuple):
    """A function: its behaviour, and that in words. ``received``: the channels' watermark. ``own``: its own ones."""

    what: str
    behaviour: Behaviour
    received: Rule
    own: Sequence[Rule] = ()

    @property
    def rules(self) -> list[Rule]:
        """All of its watermarks."""
        return [self.received, *self.own]


_TAKES_OVER = Behaviour(polled=frozenset([1]))
_REPLACES = Behaviour(polled=frozenset([1, 2]), echoes=True)
_SURROUNDS = Behaviour(before=(1,), after=(2,))
_DIVIDES = Behaviour(after=(1,))
_IS_PASSED = Behaviour(hears=False)
_POLICIES = ((False, False), (True, False), (True, True))
"""Wait for all channels, aligned."""


def function_cases(bounds: Bounds) -> list[Planned]:
    """All of them."""
    return [
        *(
            Planned(
                f"functions, inputs of {' and '.join(map(str, inputs))} channels, {one.what}, {named(one.rules)}",
                partial(_operator_case, one, inputs),
            )
            for inputs in bounds.functions
            for one in _functions(across=len(inputs) > 1)
        ),
        *(
            Planned(
                f"functions, two operators, {subtasks} subtasks, {one.what}, {named(one.rules)}",
                partial(_chain_case, one, subtasks),
            )
            for subtasks in bounds.function_chains
            for one in _functions(across=False)
        ),
        *(
            Planned(
                f"functions, two operators, {subtasks} subtasks, addressed to the second, {name_of(rule)}",
                partial(_addressed_case, rule, subtasks),
            )
            for subtasks in bounds.function_chains
            for rule in (Rule("w", FOLDS["min"], wait, aligned) for wait, aligned in _POLICIES)
        ),
    ]


def _functions(*, across: bool) -> Iterator[_Function]:
    """``across``: Include the watermarks that are combined across the inputs."""
    least = FOLDS["min"]
    for wait, aligned in _POLICIES:
        received = Rule("w", least, wait, aligned)
        yield _Function("takes over 1", _TAKES_OVER, received)
        if across:
            yield _Function("takes over 1", _TAKES_OVER, received._replace(across=True))
        yield _Function("emits others instead", _REPLACES, received, [Rule(ECHO, least, wait, aligned)])
    received = Rule("w", least)
    for wait, aligned in _POLICIES[:2]:
        yield _Function("emits around records", _SURROUNDS, received, [Rule(OWN, least, wait, aligned)])
    yield _Function("emits behind records", _DIVIDES, received, [Rule(OWN, least, wait=True, aligned=True)])


def _operator_case(function: _Function, inputs: tuple[int, ...], name: str) -> Case:
    rule, behaviour = function.received, function.behaviour
    plan = operator_plan(declared(function.rules, WatermarkHandlingStrategy.FORWARD).values(), inputs, behaviour)
    return Case(
        name,
        [subtask_component(SubtaskSystem(plan, "f"), {"w": rule}, inputs, behaviour=behaviour)],
        None,
        {"w": rule},
        letters(values_of([rule], 2)),
        held=2,
    )


def _chain_case(function: _Function, subtasks: int, name: str) -> Case:
    """Each subtask has one channel, so that what it sends is known without a model."""
    behaviour, rules = function.behaviour, {rule.identifier: rule for rule in function.rules}
    plan = chain_plan(declared(function.rules).values(), subtasks, 1, behaviour)
    return Case(
        name,
        [
            subtask_component(SubtaskSystem(plan, "first", number), rules, (1,), behaviour=behaviour)
            for number in range(subtasks)
        ],
        subtask_component(SubtaskSystem(plan, "second"), rules, (subtasks,)),
        rules,
        letters(values_of([function.received], 2), idle=not any(rule.aligned for rule in function.rules)),
        held=2,
        judged=Judged(progress_of_others=False, repeats=False),
        arriving=behaviour.for_element,
    )


def _addressed_case(rule: Rule, subtasks: int, name: str) -> Case:
    """The watermark is declared to be ignored. That concerns functions, so it passes the first one nevertheless."""
    ignored = declared([rule], WatermarkHandlingStrategy.IGNORE)["w"]
    plan = chain_plan([replace(ignored, scope=WatermarkScope(uids=("second",)))], subtasks, 1)
    return Case(
        name,
        [
            subtask_component(SubtaskSystem(plan, "first", number), {"w": rule}, (1,), behaviour=_IS_PASSED)
            for number in range(subtasks)
        ],
        subtask_component(SubtaskSystem(plan, "second"), {"w": rule}, (subtasks,), forwards=False),
        {"w": rule},
        letters(values_of([rule], 2), idle=not rule.aligned),
        held=2,
        judged=Judged(progress_of_others=False, repeats=False),
    )
