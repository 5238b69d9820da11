"""Checks that functions and sinks on tables receive records of the class that they declare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsv2.errors import PlanError
from dsv2.graph.plan import Operator, OperatorKind, Plan
from dsv2.graph.record_types import declared_type
from dsv2.sinks import Sink
from dsv2.spi import ColumnarFunction


def check_record_classes(plan: Plan) -> None:
    """Raise ``PlanError`` if the declared records of a stream are of another class than its consumer declares."""
    for operator in plan.operators:
        wanted = operator.body.dsv2_tables_of if isinstance(operator.body, ColumnarFunction | Sink) else None
        if wanted is None:
            continue
        for upstream, given in _declared(plan, operator):
            if _differ(given, wanted):
                raise PlanError(
                    f"{operator} at {operator.location} takes records of {wanted.__qualname__}, but those of "
                    f"{upstream}, defined at {upstream.location}, are of {given.__qualname__}. Map them to "
                    f"{wanted.__qualname__}."
                )


def _declared(plan: Plan, operator: Operator) -> Iterator[tuple[Operator, Any]]:
    """The operators from which the records come, with their declared classes."""
    for edge in plan.edges_into[operator.id]:
        upstream = plan.operators[edge.source]
        if upstream.kind is OperatorKind.UNION:
            yield from _declared(plan, upstream)
        else:
            yield upstream, declared_type(plan, upstream, edge.output)


def _differ(given: Any, wanted: type) -> bool:
    """Return whether no record of one class can be one of the other."""
    if not isinstance(given, type) or given is Any or getattr(given, "_is_protocol", False):
        return False
    return not issubclass(given, wanted) and not issubclass(wanted, given)
