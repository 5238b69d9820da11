"""Plans whose operators are explored, and the values that their channels send, from rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from dsv2.extension.event_time import EventTimeExtension
from dsv2.graph import Plan
from dsv2.sinks import CollectSink
from dsv2.watermark import WatermarkDeclaration, WatermarkHandlingStrategy, new_builder
from dsv2.watermark.event_time import EVENT_TIME
from tests.proofs.behaviour import AGREES, Behaviour
from tests.proofs.events import Record
from tests.proofs.rules import FOLDS, Rule
from tests.proofs.systems import TICK_MS, WatchingOne, WatchingTwo
from tests.support import local_environment

TIME = Rule(EVENT_TIME, FOLDS["min"])
"""Event time."""

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


def named(rules: Sequence[Rule]) -> str:
    """Return the part of a case's name for its rules."""
    return " and ".join(map(name_of, rules))


def name_of(rule: Rule) -> str:
    """Return the part of a case's name for a rule."""
    if rule.identifier == EVENT_TIME:
        return "event time"
    policy = "aligned" if rule.aligned else "wait for all" if rule.wait else "wait for none"
    more = [text for text, applies in (("across inputs", rule.across), ("every arrival", rule.every)) if applies]
    return f"{rule.fold.name.upper()} ({', '.join([policy, *more])})"


def declared(
    rules: Iterable[Rule], strategy: WatermarkHandlingStrategy | None = None
) -> dict[str, WatermarkDeclaration]:
    """The declarations of ``rules``, by identifier."""
    return {rule.identifier: _declaration(rule, strategy) for rule in rules}


def _declaration(rule: Rule, strategy: WatermarkHandlingStrategy | None) -> WatermarkDeclaration:
    if rule.identifier == EVENT_TIME:
        return EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
    typed = _BUILDERS[rule.fold.name](new_builder(rule.identifier))
    built = typed.combine_wait_for_all_channels(rule.wait).aligned(rule.aligned).combine_across_inputs(rule.across)
    built = built.deliver_on_arrival() if rule.every else built
    built = built.expire_after(timedelta(milliseconds=rule.lifetime * TICK_MS)) if rule.lifetime else built
    built = built if strategy is None else built.default_handling_strategy(strategy)
    built = built.per_key(int) if rule.per_key else built
    declaration: WatermarkDeclaration = built.build()
    return declaration


def operator_plan(
    declarations: Iterable[WatermarkDeclaration], inputs: tuple[int, ...], behaviour: Behaviour = AGREES
) -> Plan:
    """The operator "f" with these inputs, and a sink."""
    env = local_environment()
    env.register_type(Record)
    sources = [env.from_collection(list[Any](), f"in {n}").with_parallelism(count) for n, count in enumerate(inputs)]
    if len(sources) == 1:
        stream = sources[0].shuffle().process(WatchingOne.declaring(declarations, behaviour))
    else:
        stream = sources[0].connect_and_process(sources[1], WatchingTwo.declaring(declarations, behaviour))
    stream.with_uid("f").to_sink(CollectSink()).with_uid("out")
    return env.build_plan()


def chain_plan(
    declarations: Iterable[WatermarkDeclaration], subtasks: int, channels: int, behaviour: Behaviour = AGREES
) -> Plan:
    """The operators "first", with these subtasks and channels, and "second", with one subtask.

    ``behaviour``: That of the first one.
    """
    env = local_environment()
    env.register_type(Record)
    source = env.from_collection(list[Any](), "in").with_parallelism(channels).shuffle()
    watching = WatchingOne.declaring([*declarations], behaviour)
    first = source.process(watching).with_parallelism(subtasks).with_uid("first")
    # Round-robin, so that it is not chained to the first one.
    second = first.shuffle().process(WatchingOne.declaring([])).with_parallelism(1).with_uid("second")
    second.shuffle().to_sink(CollectSink()).with_uid("out")
    return env.build_plan()


def values_of(rules: Sequence[Rule], number: int) -> list[tuple[str, Any]]:
    """Return ``number`` values that channels send. With several identifiers, an aligned one has one value."""
    return [
        (rule.identifier, value)
        for rule in rules
        for value in rule.fold.values[: 1 if len(rules) > 1 and rule.aligned else number]
    ]
