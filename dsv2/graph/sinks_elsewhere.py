"""Plans for worker processes, which write to some sinks only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dsv2.graph.plan import Operator, Plan
from dsv2.sinks import DriverLimit, FileSink, ParallelSink, Sink


class SinkElsewhere(Sink[Any]):
    """Replaces a sink in the plan of a worker. A worker gets the sink separately if it writes to it."""

    def __init__(self, limit: DriverLimit | None) -> None:
        self._limit = limit

    @property
    def driver_limit(self) -> DriverLimit | None:
        """The limit of the sink."""
        return self._limit


def is_written_by_workers(operator: Operator) -> bool:
    """Return whether ``operator`` is a sink to which the worker processes of a local job write."""
    return isinstance(operator.body, ParallelSink | FileSink)


def with_sinks_of_workers(plan: Plan) -> Plan:
    """Return ``plan`` with ``SinkElsewhere`` for each sink to which workers of a local job do not write."""
    return plan.with_stand_ins(
        replace(operator, body=SinkElsewhere(operator.body.driver_limit))
        if isinstance(operator.body, Sink) and not is_written_by_workers(operator)
        else operator
        for operator in plan.operators
    )
