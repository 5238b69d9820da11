"""Findings about event time: functions that wait for it, and where it stops."""

from __future__ import annotations

from collections.abc import Iterator

from dsv2.extension.event_time.generator import REPLACED, WatermarkGenerator
from dsv2.graph import Edge, Operator, OperatorKind
from dsv2.graph.flow import Flow
from dsv2.plan_view.finding import Finding, note, warning
from dsv2.sources import Source
from dsv2.state import TtlTimeCharacteristic
from dsv2.watermark.event_time import EVENT_TIME, USE_PROCESSING_TIME

_TIME = frozenset((EVENT_TIME, USE_PROCESSING_TIME))
_ADVICE = (
    "Process the stream with a generator of EventTimeExtension.new_watermark_generator_builder(...), or pass "
    "watermarks=... to from_source."
)


def event_time_findings(flow: Flow) -> Iterator[Finding]:
    """Find functions without event time, inputs that hold it back, and generators that make records late."""
    for operator in flow.functions:
        if isinstance(operator.body, WatermarkGenerator):
            yield from _of_generator(operator, flow)
        if _TIME.isdisjoint(flow.declared[operator.id]):
            edges = flow.plan.edges_into[operator.id]
            without = [edge for edge in edges if _TIME.isdisjoint(flow.arriving(edge))]
            if len(without) == len(edges):
                yield from _no_time(operator)
            elif without:
                yield from _stops(operator, without, flow)


def _no_time(operator: Operator) -> Iterator[Finding]:
    if _waits(operator):
        message = (
            "waits for event time, but nothing upstream generates it: its timers and windows, and the time to live of "
            "its state, only advance at the end of the input."
        )
        yield warning("no-event-time", (operator.id,), message, _ADVICE)


def _stops(operator: Operator, without: list[Edge], flow: Flow) -> Iterator[Finding]:
    waiting = next((other for other in flow.downstream(operator) if _waits(other)), None)
    if waiting is None:
        return
    who = "its" if waiting is operator else f"the {waiting}'s"
    for edge in without:
        place = f"combines the event time of its inputs, but nothing generates it on input {edge.input + 1}."
        ends = (operator.id, edge.source)
        if flow.may_never_end(edge):
            message = f"{place} It never ends, so {who} event time does not advance."
            yield warning("event-time-stops", ends, message, _ADVICE)
        elif operator.kind is not OperatorKind.TWO_INPUT_BROADCAST or edge.input == 0:  # a side input is read first
            message = f"{place} Until it has ended, {who} event time does not advance."
            yield note("event-time-stops", ends, message, _ADVICE)


def _of_generator(operator: Operator, flow: Flow) -> Iterator[Finding]:
    (edge,) = flow.plan.edges_into[operator.id]
    if not REPLACED.isdisjoint(flow.arriving(edge)):
        code = "event-time-replaced"
        message = (
            "begins event time again from its own timestamps. The event time that is generated upstream ends here."
        )
        advice = "If only one of them is meant, remove the other generator."
    elif isinstance(flow.plan.operators[edge.source].body, Source):
        code = "generator-after-splits"
        message = "sees all splits of a reader as one stream. If a split lags behind the others, its records are late."
        advice = "Build a strategy with build_as_watermark_strategy() and pass it to from_source(..., watermarks=...)."
    else:
        return
    yield note(code, (operator.id, edge.source), message, advice)


def _waits(operator: Operator) -> bool:
    function = operator.function
    if function.dsv2_waits_for_event_time:
        return True
    ttls = [declaration.time_to_live for declaration in function.uses_states()]
    return any(ttl is not None and ttl.time_characteristic is TtlTimeCharacteristic.EVENT_TIME for ttl in ttls)
