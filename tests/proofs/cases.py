"""The cases that are explored: every combination of policy, function, status and end, on gates and on operators.

A new combination is a ``Fold`` in ``rules.py`` and a line in ``plans.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from dsv2.watermark import WatermarkHandlingStrategy
from tests.proofs.bounds import WIDE, Bounds
from tests.proofs.components import gate_component, subtask_component
from tests.proofs.event_time_cases import event_time_cases
from tests.proofs.events import letters
from tests.proofs.explorer import Case, Planned
from tests.proofs.function_cases import function_cases
from tests.proofs.invariants import Judged
from tests.proofs.keyed_cases import keyed_cases
from tests.proofs.plans import TIME, chain_plan, declared, named, operator_plan, values_of
from tests.proofs.rules import FOLDS, Fold, Rule
from tests.proofs.systems import GateSystem, SubtaskSystem
from tests.proofs.timed_cases import barrier_cases, expiry_cases

_POLICIES = ((False, False), (True, False), (True, True))
"""Wait for all channels, aligned."""
_VALUES = 2
"""The number of different values of an aligned watermark, and of those of an operator."""
_ROUND = Rule("round", FOLDS["max"], wait=True, aligned=True)
_LEAST = Rule("w", FOLDS["min"])


def cases(bounds: Bounds) -> list[Planned]:
    """All cases."""
    return [
        *gate_cases(bounds),
        *subtask_cases(bounds),
        *chain_cases(bounds),
        *event_time_cases(bounds),
        *barrier_cases(bounds),
        *expiry_cases(bounds),
        *function_cases(bounds),
        *keyed_cases(bounds),
    ]


def gate_cases(bounds: Bounds) -> list[Planned]:
    """Cases of gates."""
    return [
        Planned(f"gate, {channels} channels, {named(rules)}", partial(_gate_case, rules, channels, bounds))
        for channels in bounds.gates
        for rules in _several_rules(mixed=channels < 3)
        if bounds.mixed or rules not in ([_ROUND, TIME], [_ROUND, _LEAST])
        if channels < WIDE or not rules[0].aligned or rules[0].fold.name in bounds.wide_folds
    ]


def _gate_case(rules: Sequence[Rule], channels: int, bounds: Bounds, name: str) -> Case:
    by_identifier = {rule.identifier: rule for rule in rules}
    longest, values = bounds.gates[channels]
    is_aligned = any(rule.aligned for rule in rules)
    return Case(
        name,
        [gate_component(GateSystem(declared(rules), channels), by_identifier, channels)],
        None,
        by_identifier,
        letters(values_of(rules, min(values, _VALUES) if is_aligned else values)),
        1 if is_aligned else longest,
        bounds.held if len(rules) == 1 and channels < 3 and (bounds.mixed or _is_of_flink(rules[0])) else 2,
        Judged(status=True, closes=False),
    )


def _is_of_flink(rule: Rule) -> bool:
    """Return whether its combination is one of the four that Flink has."""
    return rule.fold.name in ("min", "max", "and", "or")


def subtask_cases(bounds: Bounds) -> list[Planned]:
    """Cases of operators with one input and with two."""
    return [
        Planned(
            f"operator, inputs of {' and '.join(map(str, inputs))} channels, {named(rules)}, {strategy.value}",
            partial(_subtask_case, rules, inputs, strategy, bounds),
        )
        for rules, inputs, strategy in _programs(bounds)
    ]


def _programs(bounds: Bounds) -> Iterator[tuple[Sequence[Rule], tuple[int, ...], WatermarkHandlingStrategy]]:
    for inputs in bounds.inputs:
        folds = [FOLDS[name] for name in bounds.folds_of(sum(inputs))]
        for rules in _several_rules(folds, mixed=bounds.mixed and sum(inputs) < WIDE):
            is_sent_on = all(rule.fold.is_idempotent for rule in rules)
            strategy = WatermarkHandlingStrategy.FORWARD if is_sent_on else WatermarkHandlingStrategy.IGNORE
            if len(inputs) == 1 or len(rules) == 1:
                yield rules, inputs, strategy
            if len(inputs) == 2 and len(rules) == 1 and rules != [TIME] and is_sent_on:
                yield [rule._replace(across=True) for rule in rules], inputs, strategy
    yield [Rule("w", FOLDS["max"])], (2,), WatermarkHandlingStrategy.IGNORE


def _subtask_case(
    rules: Sequence[Rule], inputs: tuple[int, ...], strategy: WatermarkHandlingStrategy, bounds: Bounds, name: str
) -> Case:
    by_identifier = {rule.identifier: rule for rule in rules}
    system = SubtaskSystem(operator_plan(declared(rules, strategy).values(), inputs), "f")
    forwards = strategy is WatermarkHandlingStrategy.FORWARD
    values = 1 if sum(inputs) >= WIDE and any(rule.aligned for rule in rules) else _VALUES
    return Case(
        name,
        [subtask_component(system, by_identifier, inputs, forwards=forwards)],
        None,
        by_identifier,
        letters(values_of(rules, values)),
        held=2,
        judged=Judged(overtakes=len(inputs) == 1),
    )


def chain_cases(bounds: Bounds) -> list[Planned]:
    """Cases of two operators.

    The status of a channel does not change if watermarks are aligned. If a subtask waits for several channels, it does
    not either: a watermark that was sent without an idle channel cannot be taken back when that becomes active.
    """
    return [
        Planned(
            f"two operators, {subtasks} subtasks of {channels} channels, {named(rules)}",
            partial(_chain_case, rules, subtasks, channels, bounds),
        )
        for subtasks, channels in bounds.chains
        for rules in _several_rules((FOLDS[name] for name in bounds.folds_of(subtasks * channels)), mixed=bounds.mixed)
        if len(rules) == 1 and rules[0].fold.is_idempotent
        if channels == 1 or rules[0].fold.is_absorbing  # the median of medians is another one
    ]


def _chain_case(rules: Sequence[Rule], subtasks: int, channels: int, bounds: Bounds, name: str) -> Case:
    by_identifier = {rule.identifier: rule for rule in rules}
    plan = chain_plan(declared(rules).values(), subtasks, channels)
    return Case(
        name,
        [
            subtask_component(SubtaskSystem(plan, "first", index), by_identifier, (channels,))
            for index in range(subtasks)
        ],
        subtask_component(SubtaskSystem(plan, "second"), by_identifier, (subtasks,)),
        by_identifier,
        letters(values_of(rules, _VALUES), idle=not rules[0].aligned and (channels == 1 or not rules[0].wait)),
        held=2,
        judged=Judged(progress_of_others=False, repeats=False, last_values=channels == 1),
    )


def _several_rules(folds: Iterable[Fold] = FOLDS.values(), *, mixed: bool = True) -> Iterator[list[Rule]]:
    """The declarations of each case. ``mixed``: Include those of several watermarks, and those of every arrival."""
    for fold in folds:
        for wait, aligned in _POLICIES[:1] if fold.takes_last else _POLICIES:
            yield [Rule("w", fold, wait, aligned)]
    yield [TIME]
    if not mixed:
        return
    yield [Rule("w", FOLDS["min"], every=True)]
    yield [Rule("w", FOLDS["union"], wait=True, every=True)]
    yield [_ROUND, _LEAST]
    yield [_ROUND, TIME]
    yield [_ROUND, Rule("other", FOLDS["and"], wait=True, aligned=True)]
