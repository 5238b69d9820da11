"""Values of a watermark that no function behind an exchange can notice, so that they need not be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from dsv2.functions import ProcessFunction
from dsv2.graph.plan import Edge, Exchange, Operator, OperatorKind
from dsv2.graph.watermark_handlers import handlers_of
from dsv2.watermark import WatermarkDeclaration, WatermarkHandlingStrategy
from dsv2.watermark.event_time import RESERVED

ON_WATERMARK: Final = {
    OperatorKind.TWO_INPUT: ("on_watermark_from_first_input", "on_watermark_from_second_input"),
    OperatorKind.TWO_INPUT_BROADCAST: ("on_watermark_from_non_broadcast_input", "on_watermark_from_broadcast_input"),
}
"""The callbacks for watermarks of functions with two inputs, by input. The others have ``on_watermark``."""


def with_superseded(
    operators: Sequence[Operator], edges: Sequence[Edge], declarations: Mapping[str, WatermarkDeclaration]
) -> tuple[Edge, ...]:
    """Return ``edges`` with their ``last_only``: the watermarks for which the last value is enough.

    These are the watermarks that no function behind the exchange receives: all functions that they can reach inherit
    ``on_watermark`` from their base class, and have no handler for them. Aligned watermarks are not among them, because
    each value ends a round, neither are per-key watermarks, which concern different keys, nor event time, which fires
    timers. Sinks ignore watermarks, but test harnesses show what is sent to them.
    """
    candidates = {
        identifier
        for identifier, declaration in declarations.items()
        if not declaration.combination_policy.aligned
        and declaration.scope.key_type is None
        and not identifier.startswith(RESERVED)
    }
    forwarded = {
        identifier
        for identifier in candidates
        if declarations[identifier].default_handling_strategy is WatermarkHandlingStrategy.FORWARD
    }
    leaving: dict[int, list[Edge]] = {}
    for edge in edges:
        leaving.setdefault(edge.source, []).append(edge)
    noticed_by: dict[int, list[set[str]]] = {}  # for each operator, by input
    for operator in reversed(operators):
        behind = set(chain.from_iterable(noticed_by[edge.target][edge.input] for edge in leaving.get(operator.id, ())))
        passed_on = behind & (forwarded | operator.passes_on)
        noticed_by[operator.id] = [
            passed_on | (_acted_on(operator, number, candidates) - operator.passes_on)
            for number in range(max(1, len(operator.input_keys)))
        ]
    is_sink = {operator.id for operator in operators if operator.kind is OperatorKind.SINK}
    return tuple(
        edge
        if edge.exchange is Exchange.FORWARD or edge.target in is_sink
        else replace(edge, last_only=frozenset(candidates - noticed_by[edge.target][edge.input]))
        for edge in edges
    )


def _acted_on(operator: Operator, number: int, candidates: set[str]) -> set[str]:
    """The watermarks of an input that code of the user, or of an extension, receives or has a handler for."""
    if _receives(operator, number):
        return candidates
    handlers = handlers_of(operator.body, operator.kind)
    return candidates & {handler.identifier for handler in handlers if handler.input == number}


def _receives(operator: Operator, number: int) -> bool:
    """Return whether code of the user, or of an extension, receives the watermarks of an input."""
    if not isinstance(operator.body, ProcessFunction):
        return False
    if operator.broadcast_wait is not None and number == 1:
        return True
    names = ON_WATERMARK.get(operator.kind, ("on_watermark",))
    name = names[min(number, len(names) - 1)]
    if name in vars(operator.body):
        return True
    owner = next((base for base in type(operator.body).__mro__ if name in vars(base)), None)
    return owner is None or not owner.__module__.startswith("dsv2.functions.")
