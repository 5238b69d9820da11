"""The cases that are explored: every combination of policy, function, status and end, on gates and on operators.

A new combination is a ``Fold`` in ``rules.py`` and a line in ``_declared``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from dsv2.extension.event_time import EventTimeExtension
from dsv2.graph import Plan
from dsv2.sinks import CollectSink
from dsv2.watermark import WatermarkDeclaration, WatermarkHandlingStrategy, new_builder
from dsv2.watermark.barrier import WhenExceeded
from dsv2.watermark.event_time import EVENT_TIME
from tests.proofs.barrier_facts import BarrierFacts
from tests.proofs.barrier_model import BARRIER, Limits
from tests.proofs.components import barrier_component, gate_component, subtask_component
from tests.proofs.events import Record, letters
from tests.proofs.expiring import ExpiringFacts
from tests.proofs.explorer import Case
from tests.proofs.invariants import Judged
from tests.proofs.rules import FOLDS, Fold, Rule
from tests.proofs.systems import TICK_MS, GateSystem, SubtaskSystem, WatchingOne, WatchingTwo
from tests.support import local_environment

__all__ = (
    "BOUNDED",
    "NIGHTLY",
    "Bounds",
    "Planned",
    "barrier_cases",
    "cases",
    "chain_cases",
    "expiry_cases",
    "gate_cases",
    "subtask_cases",
)


@dataclass(frozen=True)
class Bounds:
    """How far to explore.

    Attributes:
        gates: For each number of channels of a gate: the number of events in a frame of a watermark that is not
            aligned, and the number of its different values, at most.
        held: The number of elements behind an aligned watermark, at most.
        inputs: The numbers of channels of the inputs of operators.
        folds: The names of the combinations of operators. Gates have all of them.
        mixed: Whether operators have several watermarks, and watermarks that are delivered on every arrival.
        barriers: Operators that receive barriers: the numbers of channels of their inputs, the number of different ids,
            and the number of events in a frame, at most.
        expiring: Operators that receive watermarks that expire: the numbers of channels of their inputs, and the number
            of events in a frame, at most.
        chains: Two operators: the number of subtasks of the first one, and of their channels.
    """

    gates: Mapping[int, tuple[int, int]]
    held: int
    inputs: Sequence[tuple[int, ...]]
    folds: Sequence[str]
    mixed: bool
    chains: Sequence[tuple[int, int]]
    barriers: Sequence[tuple[tuple[int, ...], int, int]]
    expiring: Sequence[tuple[tuple[int, ...], int]]


BOUNDED = Bounds(
    {1: (2, 2), 2: (1, 2)},
    3,
    ((1,), (1, 1)),
    ("min",),
    False,
    ((2, 1),),
    (((2,), 2, 1), ((1, 1), 2, 1)),
    (((2,), 1), ((1, 1), 1)),
)
"""For every run of the tests."""
NIGHTLY = Bounds(
    {1: (3, 3), 2: (2, 3), 3: (1, 2)},
    4,
    ((1,), (2,), (3,), (1, 1), (2, 1)),
    tuple(FOLDS),
    True,
    ((2, 1), (3, 1), (2, 2)),
    (((1,), 4, 3), ((2,), 3, 2), ((1, 1), 3, 2), ((3,), 2, 1), ((2, 1), 2, 1)),
    (((1,), 3), ((2,), 2), ((1, 1), 2), ((3,), 1)),
)

_POLICIES = ((False, False), (True, False), (True, True))
"""Wait for all channels, aligned."""
_LIFETIME = 2
"""Of values that expire, in moves of the clock."""
_LIMITS = (
    Limits(),
    Limits(ticks=1, proceeds=True),
    Limits(records=1, proceeds=True),
    Limits(ticks=1),
    Limits(records=1),
)
_VALUES = 2
"""The number of different values of an aligned watermark, and of those of an operator."""
_TIME = Rule(EVENT_TIME, FOLDS["min"])
_ROUND = Rule("round", FOLDS["max"], wait=True, aligned=True)
_BUILDERS: dict[str, Callable[[Any], Any]] = {
    "min": lambda start: start.type_long().combine_function_min(),
    "max": lambda start: start.type_long().combine_function_max(),
    "and": lambda start: start.type_bool().combine_function_and(),
    "or": lambda start: start.type_bool().combine_function_or(),
    "greatest text": lambda start: start.type_str().combine_function_max(),
    "union": lambda start: start.type_set(str).combine_function_union(),
    "intersection": lambda start: start.type_set(str).combine_function_intersection(),
    "least entries": lambda start: start.type_vector().combine_function_min(),
    "greatest entries": lambda start: start.type_vector().combine_function_max(),
    "last": lambda start: start.type_long().combine_function_last(),
    "median": lambda start: start.type_long().combine_function_quantile(0.5),
    "sum": lambda start: start.type_long().combine_function_sum(),
    "count": lambda start: start.type_long().combine_function_count(),
    "product": lambda start: start.type_long().combine(lambda a, b: a * b % 5, neutral=1, samples=[1, 2, 3]),
}


class Planned(NamedTuple):
    """A case that has yet to be made."""

    name: str
    make: Callable[[str], Case]

    def case(self) -> Case:
        """Make it."""
        return self.make(self.name)


def cases(bounds: Bounds) -> list[Planned]:
    """All cases."""
    return [
        *gate_cases(bounds),
        *subtask_cases(bounds),
        *chain_cases(bounds),
        *barrier_cases(bounds),
        *expiry_cases(bounds),
    ]


def gate_cases(bounds: Bounds) -> list[Planned]:
    """Cases of gates."""
    return [
        Planned(f"gate, {channels} channels, {_named(rules)}", partial(_gate_case, rules, channels, bounds))
        for channels in bounds.gates
        for rules in _several_rules(mixed=channels < 3)
        if bounds.mixed or rules != [_ROUND, _TIME]
    ]


def _gate_case(rules: Sequence[Rule], channels: int, bounds: Bounds, name: str) -> Case:
    by_identifier = {rule.identifier: rule for rule in rules}
    longest, values = bounds.gates[channels]
    is_aligned = any(rule.aligned for rule in rules)
    return Case(
        name,
        [gate_component(GateSystem(_declared(rules), channels), by_identifier, channels)],
        None,
        by_identifier,
        letters(_values(rules, min(values, _VALUES) if is_aligned else values)),
        1 if is_aligned else longest,
        bounds.held if len(rules) == 1 and channels < 3 and (bounds.mixed or _is_of_flink(rules[0])) else 2,
        Judged(status=True, closes=False),
    )


def _is_of_flink(rule: Rule) -> bool:
    """Whether its combination is one of the four that Flink has."""
    return rule.fold.name in ("min", "max", "and", "or")


def subtask_cases(bounds: Bounds) -> list[Planned]:
    """Cases of operators with one input and with two."""
    return [
        Planned(
            f"operator, inputs of {' and '.join(map(str, inputs))} channels, {_named(rules)}, {strategy.value}",
            partial(_subtask_case, rules, inputs, strategy, bounds),
        )
        for rules, inputs, strategy in _programs(bounds)
    ]


def _programs(bounds: Bounds) -> Iterator[tuple[Sequence[Rule], tuple[int, ...], WatermarkHandlingStrategy]]:
    folds = [FOLDS[name] for name in bounds.folds]
    for inputs in bounds.inputs:
        for rules in _several_rules(folds, mixed=bounds.mixed):
            is_sent_on = all(rule.fold.is_idempotent for rule in rules)
            strategy = WatermarkHandlingStrategy.FORWARD if is_sent_on else WatermarkHandlingStrategy.IGNORE
            if len(inputs) == 1 or len(rules) == 1:
                yield rules, inputs, strategy
            if len(inputs) == 2 and len(rules) == 1 and rules != [_TIME] and is_sent_on:
                yield [rule._replace(across=True) for rule in rules], inputs, strategy
    yield [Rule("w", FOLDS["max"])], (2,), WatermarkHandlingStrategy.IGNORE


def _subtask_case(
    rules: Sequence[Rule], inputs: tuple[int, ...], strategy: WatermarkHandlingStrategy, bounds: Bounds, name: str
) -> Case:
    by_identifier = {rule.identifier: rule for rule in rules}
    system = SubtaskSystem(_plan(_declared(rules, strategy).values(), inputs), "f")
    forwards = strategy is WatermarkHandlingStrategy.FORWARD
    return Case(
        name,
        [subtask_component(system, by_identifier, inputs, forwards=forwards)],
        None,
        by_identifier,
        letters(_values(rules, _VALUES)),
        held=2,
    )


def chain_cases(bounds: Bounds) -> list[Planned]:
    """Cases of two operators. The status of a channel does not change if watermarks are aligned."""
    return [
        Planned(
            f"two operators, {subtasks} subtasks of {channels} channels, {_named(rules)}",
            partial(_chain_case, rules, subtasks, channels, bounds),
        )
        for subtasks, channels in bounds.chains
        for rules in _several_rules((FOLDS[name] for name in bounds.folds), mixed=bounds.mixed)
        if len(rules) == 1 and rules[0].fold.is_idempotent
    ]


def _chain_case(rules: Sequence[Rule], subtasks: int, channels: int, bounds: Bounds, name: str) -> Case:
    by_identifier = {rule.identifier: rule for rule in rules}
    plan = _chain_plan(_declared(rules).values(), subtasks, channels)
    return Case(
        name,
        [
            subtask_component(SubtaskSystem(plan, "first", index), by_identifier, (channels,))
            for index in range(subtasks)
        ],
        subtask_component(SubtaskSystem(plan, "second"), by_identifier, (subtasks,)),
        by_identifier,
        letters(_values(rules, _VALUES), idle=not rules[0].aligned),
        held=2,
        judged=Judged(progress_of_others=False, repeats=False),
    )


def barrier_cases(bounds: Bounds) -> list[Planned]:
    """Cases of operators that receive barriers."""
    return [
        Planned(
            f"barriers, inputs of {' and '.join(map(str, inputs))} channels, {_limit(limits)}",
            partial(_barrier_case, inputs, limits, ids, longest, bounds),
        )
        for inputs, ids, longest in bounds.barriers
        for limits in (_LIMITS if bounds.mixed or len(inputs) == 1 else _LIMITS[:1])
    ]


def _barrier_case(inputs: tuple[int, ...], limits: Limits, ids: int, longest: int, bounds: Bounds, name: str) -> Case:
    system = SubtaskSystem(_plan([_barrier(limits)], inputs), "f")
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


def expiry_cases(bounds: Bounds) -> list[Planned]:
    """Cases of operators that receive watermarks that expire."""
    return [
        Planned(
            f"expiring, inputs of {' and '.join(map(str, inputs))} channels, {_name(rule)}",
            partial(_expiry_case, inputs, rule, longest, bounds),
        )
        for inputs, longest in bounds.expiring
        for rule in _expiring_rules(bounds)
        if rule.across == (len(inputs) == 2) or (bounds.mixed and not rule.across)
    ]


def _expiring_rules(bounds: Bounds) -> Iterator[Rule]:
    for fold in (fold for fold in FOLDS.values() if bounds.mixed or fold.name == "max"):
        if not fold.takes_last:
            yield Rule("w", fold, lifetime=_LIFETIME)
            if bounds.mixed:
                yield Rule("w", fold, wait=True, lifetime=_LIFETIME)
            if fold.is_idempotent:
                yield Rule("w", fold, wait=True, across=True, lifetime=_LIFETIME)


def _expiry_case(inputs: tuple[int, ...], rule: Rule, longest: int, bounds: Bounds, name: str) -> Case:
    forwards = rule.fold.is_idempotent
    strategy = WatermarkHandlingStrategy.FORWARD if forwards else WatermarkHandlingStrategy.IGNORE
    system = SubtaskSystem(_plan(_declared([rule], strategy).values(), inputs), "f")
    return Case(
        name,
        [subtask_component(system, {"w": rule}, inputs, forwards=forwards)],
        None,
        {"w": rule},
        letters(_values([rule], _VALUES), idle=bounds.mixed),
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


def _several_rules(folds: Iterable[Fold] = FOLDS.values(), *, mixed: bool = True) -> Iterator[list[Rule]]:
    """The declarations of each case. ``mixed``: Include those of several watermarks, and those of every arrival."""
    for fold in folds:
        for wait, aligned in _POLICIES[:1] if fold.takes_last else _POLICIES:
            yield [Rule("w", fold, wait, aligned)]
    yield [_TIME]
    if not mixed:
        return
    yield [Rule("w", FOLDS["min"], every=True)]
    yield [Rule("w", FOLDS["union"], wait=True, every=True)]
    yield [_ROUND, Rule("w", FOLDS["min"])]
    yield [_ROUND, _TIME]
    yield [_ROUND, Rule("other", FOLDS["and"], wait=True, aligned=True)]


def _values(rules: Sequence[Rule], number: int) -> list[tuple[str, Any]]:
    """What channels send. With several identifiers, an aligned one has one value."""
    return [
        (rule.identifier, value)
        for rule in rules
        for value in rule.fold.values[: 1 if len(rules) > 1 and rule.aligned else number]
    ]


def _named(rules: Sequence[Rule]) -> str:
    return " and ".join(map(_name, rules))


def _name(rule: Rule) -> str:
    if rule.identifier == EVENT_TIME:
        return "event time"
    policy = "aligned" if rule.aligned else "wait for all" if rule.wait else "wait for none"
    more = [text for text, applies in (("across inputs", rule.across), ("every arrival", rule.every)) if applies]
    return f"{rule.fold.name.upper()} ({', '.join([policy, *more])})"


def _declared(
    rules: Iterable[Rule], strategy: WatermarkHandlingStrategy | None = None
) -> dict[str, WatermarkDeclaration]:
    return {rule.identifier: _declaration(rule, strategy) for rule in rules}


def _declaration(rule: Rule, strategy: WatermarkHandlingStrategy | None) -> WatermarkDeclaration:
    if rule.identifier == EVENT_TIME:
        return EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
    typed = _BUILDERS[rule.fold.name](new_builder(rule.identifier))
    built = typed.combine_wait_for_all_channels(rule.wait).aligned(rule.aligned).combine_across_inputs(rule.across)
    built = built.deliver_on_arrival() if rule.every else built
    built = built.expire_after(timedelta(milliseconds=rule.lifetime * TICK_MS)) if rule.lifetime else built
    built = built if strategy is None else built.default_handling_strategy(strategy)
    declaration: WatermarkDeclaration = built.build()
    return declaration


def _plan(declarations: Iterable[WatermarkDeclaration], inputs: tuple[int, ...]) -> Plan:
    """The operator "f" with these inputs, and a sink."""
    env = local_environment()
    env.register_type(Record)
    sources = [env.from_collection(list[Any](), f"in {n}").with_parallelism(count) for n, count in enumerate(inputs)]
    if len(sources) == 1:
        stream = sources[0].shuffle().process(WatchingOne.declaring(declarations))
    else:
        stream = sources[0].connect_and_process(sources[1], WatchingTwo.declaring(declarations))
    stream.with_uid("f").to_sink(CollectSink()).with_uid("out")
    return env.build_plan()


def _chain_plan(declarations: Iterable[WatermarkDeclaration], subtasks: int, channels: int) -> Plan:
    """The operators "first", with these subtasks and channels, and "second", with one subtask."""
    env = local_environment()
    env.register_type(Record)
    source = env.from_collection(list[Any](), "in").with_parallelism(channels).shuffle()
    first = source.process(WatchingOne.declaring(declarations)).with_parallelism(subtasks).with_uid("first")
    # Round-robin, so that it is not chained to the first one.
    second = first.shuffle().process(WatchingOne.declaring(declarations)).with_parallelism(1).with_uid("second")
    second.shuffle().to_sink(CollectSink()).with_uid("out")
    return env.build_plan()
