"""Cases of per-key watermarks: for the function that receives them, each key has a watermark of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from dsv2.graph import Plan
from dsv2.sinks import CollectSink
from dsv2.watermark import KeyedWatermark
from tests.proofs.bounds import WIDE, Bounds
from tests.proofs.components import Component, subtask_component
from tests.proofs.events import Record, letters
from tests.proofs.explorer import Case, Planned
from tests.proofs.plans import declared, name_of
from tests.proofs.rules import FOLDS, Rule
from tests.proofs.systems import SubtaskSystem, WatchingOne
from tests.support import Signal, local_environment

_VALUES = (2, 1)
"""The number of different values of the first key, and of the second."""


class _WatchingKeys(WatchingOne):
    """Receives watermarks about keys."""

    def on_key_watermark(self, watermark: KeyedWatermark[Any, int], output: Any, ctx: Any) -> None:
        self.seen.append(("watermark", 0, _identifier(watermark.key), watermark.value))


def keyed_cases(bounds: Bounds) -> list[Planned]:
    """All of them."""
    return [
        Planned(
            f"functions, {keys} keys, inputs of {channels} channels, {name_of(rule)}",
            partial(_case, rule, channels, keys),
        )
        for channels, keys in bounds.keyed
        for rule in _rules(bounds.folds_of_keys if channels * keys < WIDE else bounds.wide_folds[:1])
    ]


def _rules(folds: Iterable[str]) -> Iterator[Rule]:
    for fold in map(FOLDS.__getitem__, folds):
        for wait in (False, True):
            yield Rule("w", fold, wait, per_key=True)


def _case(rule: Rule, channels: int, keys: int, name: str) -> Case:
    of_keys = {_identifier(key): rule._replace(identifier=_identifier(key)) for key in range(keys)}
    return Case(
        name,
        [_component(rule, of_keys, channels)],
        None,
        of_keys,
        letters(("w", (key, value)) for key in range(keys) for value in rule.fold.values[: _VALUES[key]]),
        arriving=_arriving,
    )


def _component(rule: Rule, of_keys: dict[str, Rule], channels: int) -> Component:
    system = SubtaskSystem(_plan(rule, channels), "f")
    return subtask_component(system, of_keys, (channels,), forwards=False, arriving=_arriving)


def _plan(rule: Rule, channels: int) -> Plan:
    env = local_environment()
    env.register_type(Record)
    source = env.from_collection(list[Record](), "in").with_parallelism(channels)
    function = _WatchingKeys.declaring(declared([rule]).values())
    source.key_by(_key).process(function).with_uid("f").to_sink(CollectSink()).with_uid("out")
    return env.build_plan()


def _key(record: Record) -> int:
    """No key of a watermark. Otherwise, records would be a part of the order in which keys are processed."""
    return -1


def _identifier(key: int) -> str:
    return f"w of {key}"


def _arriving(element: Any) -> Sequence[Any]:
    if not isinstance(element, Signal) or element.identifier != "w":
        return (element,)
    pair: Any = element.value
    return (Signal(element.kind, _identifier(pair[0]), pair[1]),)
