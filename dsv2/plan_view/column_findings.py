"""Sources and sinks that move columns of records, and why others move rows."""

from __future__ import annotations

from collections.abc import Iterator

from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.graph.flow import Flow
from dsv2.plan_view.finding import Finding, note
from dsv2.sinks import Sink
from dsv2.sources.base import BaseSource
from dsv2.spi import BatchFunction, ColumnarFunction

_ADVICE = "This only matters for speed."


def moves_columns(plan: Plan, operator: Operator) -> bool:
    """Return whether a source reads columns for tables, or a sink writes the columns that it receives."""
    if isinstance(operator.body, Sink):
        return operator.body.dsv2_takes_columns and _receives_columns(plan, operator)
    return isinstance(operator.body, BaseSource) and _sends_columns(plan, operator)


def column_findings(flow: Flow) -> Iterator[Finding]:
    """Find sources that read rows before tables, and sinks that make rows of columns."""
    plan = flow.plan
    for operator in plan.operators:
        body = operator.body
        if isinstance(body, BaseSource) and plan.processes_columns(operator) and body.dsv2_why_rows:
            message = f"reads rows, which become columns before a function or sink on tables: {body.dsv2_why_rows}."
            yield note("reads-rows", (operator.id,), message, _ADVICE)
        if isinstance(body, Sink) and body.dsv2_why_rows and _receives_columns(plan, operator):
            message = f"receives columns and makes rows of them: {body.dsv2_why_rows}."
            yield note("writes-rows", (operator.id,), message, _ADVICE)


def _sends_columns(plan: Plan, operator: Operator) -> bool:
    body = operator.body
    if isinstance(body, BaseSource):
        return plan.processes_columns(operator) and body.dsv2_why_rows == ""
    passes = operator.kind is OperatorKind.UNION or (isinstance(body, BatchFunction) and body.passes_records)
    return _receives_columns(plan, operator) if passes else isinstance(body, ColumnarFunction)


def _receives_columns(plan: Plan, operator: Operator) -> bool:
    return any(_sends_columns(plan, plan.operators[edge.source]) for edge in plan.edges_into[operator.id])
