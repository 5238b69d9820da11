"""Findings about event time: functions that wait for it, and where it stops."""

from __future__ import annotations

from collections.abc import Iterator

from dsv2.extension.event_time.generator import REPLACED, WatermarkGenerator
from dsv2.findings.finding import Finding, Severity
from dsv2.findings.flow import Flow
from dsv2.functions import ProcessFunction
from dsv2.graph import Edge, Operator, OperatorKind
from dsv2.sources import Source
from dsv2.state import TtlTimeCharacteristic
from dsv2.watermark.event_time import EVENT_TIME, USE_PROCESSING_TIME

__all__ = ("event_time_findings",)

_TIME = frozenset((EVENT_TIME, USE_PROCESSING_TIME))
_ADVICE = (
    "Process the stream with a generator of EventTimeExtension.new_watermark_generator_builder(...), or pass "
    "watermarks=... to from_source."
)


def event_time_findings(flow: Flow) -> Iterator[Finding]:
    """Find functions without event time, inputs that hold it back, and generators that make records late."""
    for operator in flow.plan.operators:
        if not isinstance(operator.body, ProcessFunction):
            continue
        if isinstance(operator.body, WatermarkGenerator):
            yield from _after_splits(operator, flow)
            yield from _replaces(operator, flow)
        if _TIME.isdisjoint(flow.declared[operator.id]):
            edges = flow.plan.edges_into[operator.id]
            without = [edge for edge in edges if _TIME.isdisjoint(flow.arriving(edge))]
            if len(without) == len(edges):
                yield from _no_time(operator)
            elif without:
                yield from _stops(operator, without, flow)


def _no_time(operator: Operator) -> Iterator[Finding]:
    if _waits(operator):
        yield Finding(
            "no-event-time",
            Severity.WARNING,
            (operator.id,),
            "waits for event time, but nothing upstream generates it: its timers and windows, and the time to live of "
            "its state, only advance at the end of the input.",
            _ADVICE,
        )


def _stops(operator: Operator, without: list[Edge], flow: Flow) -> Iterator[Finding]:
    waiting = next((other for other in flow.downstream(operator) if _waits(other)), None)
    if waiting is None:
        return
    for edge in without:
        endless = flow.may_never_end(edge)
        is_side = operator.kind is OperatorKind.TWO_INPUT_BROADCAST and edge.input == 1
        if is_side and not endless:
            continue  # a side input is read first, and then ended
        who = "its" if waiting is operator else f"the {waiting}'s"
        until = "It never ends, so" if endless else "Until it has ended,"
        yield Finding(
            "event-time-stops",
            Severity.WARNING if endless else Severity.NOTE,
            (operator.id, edge.source),
            f"combines the event time of its inputs, but nothing generates it on input {edge.input + 1}. {until} {who} "
            f"event time does not advance.",
            _ADVICE,
        )


def _after_splits(operator: Operator, flow: Flow) -> Iterator[Finding]:
    (edge,) = flow.plan.edges_into[operator.id]
    source = flow.plan.operators[edge.source]
    if isinstance(source.body, Source) and REPLACED.isdisjoint(flow.arriving(edge)):
        yield Finding(
            "generator-after-splits",
            Severity.NOTE,
            (operator.id, source.id),
            "sees all splits of a reader as one stream. If a split lags behind the others, its records are late.",
            "Build a strategy with build_as_watermark_strategy() and pass it to from_source(..., watermarks=...).",
        )


def _replaces(operator: Operator, flow: Flow) -> Iterator[Finding]:
    (edge,) = flow.plan.edges_into[operator.id]
    if not REPLACED.isdisjoint(flow.arriving(edge)):
        yield Finding(
            "event-time-replaced",
            Severity.NOTE,
            (operator.id, edge.source),
            "begins event time again from its own timestamps. The event time that is generated upstream ends here.",
            "If only one of them is meant, remove the other generator.",
        )


def _waits(operator: Operator) -> bool:
    function = operator.function
    if function.dsv2_waits_for_event_time:
        return True
    ttls = [declaration.time_to_live for declaration in function.uses_states()]
    return any(ttl is not None and ttl.time_characteristic is TtlTimeCharacteristic.EVENT_TIME for ttl in ttls)
