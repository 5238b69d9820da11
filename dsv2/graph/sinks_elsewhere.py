"""Plans for worker processes, which write to no sinks other than parallel ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dsv2.graph.plan import Plan
from dsv2.sinks import DriverLimit, ParallelSink, Sink


class SinkElsewhere(Sink[Any]):
    """Replaces a sink in the plan of a worker. A worker gets the sink separately if it writes to it."""

    def __init__(self, limit: DriverLimit | None) -> None:
        self._limit = limit

    @property
    def driver_limit(self) -> DriverLimit | None:
        """The limit of the sink."""
        return self._limit


def with_parallel_sinks(plan: Plan) -> Plan:
    """Return ``plan`` with ``SinkElsewhere`` for each sink that is no ``ParallelSink``."""
    return plan.with_stand_ins(
        replace(operator, body=SinkElsewhere(operator.body.driver_limit))
        if isinstance(operator.body, Sink) and not isinstance(operator.body, ParallelSink)
        else operator
        for operator in plan.operators
    )
