"""Counts what goes to sinks on the driver in one micro-batch, and refuses more than their limits."""

from __future__ import annotations

from dsv2.errors import JobError
from dsv2.graph import Operator, Plan
from dsv2.runtime.report.sink_calls import name_of
from dsv2.sinks import DriverLimit, Sink


class DriverLimits:
    """The records and bytes for the sinks of a plan, in one micro-batch."""

    def __init__(self, plan: Plan) -> None:
        self._operators = plan.operators
        self._received: dict[int, _Received | None] = {}
        self._exceeded: str | None = None

    def add(self, operator: int, records: int, size: int = 0) -> bool:
        """Count what is sent to the operator ``operator``. Returns whether it may be sent.

        Does not raise, because it is called while a function is running. ``size``: In bytes.
        """
        if operator not in self._received:
            self._received[operator] = self._new(operator)
        received = self._received[operator]
        if received is None:
            return True
        problem = received.add(records, size)
        self._exceeded = self._exceeded or problem
        return problem is None

    def _new(self, operator: int) -> _Received | None:
        sink = self._operators[operator].body
        limit = sink.driver_limit if isinstance(sink, Sink) else None
        return None if limit is None else _Received(self._operators[operator], limit)

    def check(self) -> None:
        """Raise ``JobError`` if more than a limit was sent to a sink."""
        if self._exceeded is not None:
            raise JobError(self._exceeded)


class _Received:
    def __init__(self, operator: Operator, limit: DriverLimit) -> None:
        self._operator = operator
        self._limit = limit
        self._records = self._bytes = 0

    def add(self, records: int, size: int) -> str | None:
        self._records += records
        self._bytes += size
        limit = self._limit
        if limit.max_records is not None and self._records > limit.max_records:
            return self._error("max_records", f"{limit.max_records:,} records")
        if limit.max_bytes is not None and self._bytes > limit.max_bytes:
            return self._error("max_bytes", f"{limit.max_bytes:,} bytes")
        return None

    def _error(self, argument: str, limit: str) -> str:
        return (
            f"{name_of(self._operator)} receives more than {limit} in a micro-batch. All of it must fit into the "
            f"memory of the driver. Use a sink that is written in tasks, such as FileSink, KafkaSink or your own "
            f"ParallelSink or ArrowSink; read less in a micro-batch; or set {argument} (None: no limit)."
        )
