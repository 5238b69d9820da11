"""Warnings about streams that no operator reads."""

from __future__ import annotations

import warnings

from dsv2.errors import UnreadStreamWarning
from dsv2.graph.plan import Operator, OperatorKind, Plan
from dsv2.graph.record_types import declared_type

__all__ = ("warn_of_unread_streams",)

_OUTPUTS = ("first ", "second ")


def warn_of_unread_streams(plan: Plan) -> None:
    """Warn about each output without a consumer, at the line that created its operator.

    An output with the declared type None is skipped, because it emits nothing.
    """
    read = {(edge.source, edge.output) for edge in plan.edges}
    for operator in plan.operators:
        for output in range(_count(operator)):
            if (operator.id, output) not in read and declared_type(plan, operator, output) not in (None, type(None)):
                which = _OUTPUTS[output] if operator.kind is OperatorKind.TWO_OUTPUT else ""
                file, _, line = operator.location.rpartition(":")
                text = f"Nothing reads the {which}stream of {operator}: its records are lost. Add to_sink or process."
                warnings.warn_explicit(text, UnreadStreamWarning, file, int(line))


def _count(operator: Operator) -> int:
    return 0 if operator.kind is OperatorKind.SINK else len(operator.output_keys)
