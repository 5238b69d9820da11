"""Short phrases about operators and edges, which the text and the diagrams share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from dsv2.base.quantities import counted
from dsv2.graph import Exchange, OperatorKind
from dsv2.plan_view.finding import Finding
from dsv2.plan_view.model import EdgeView, OperatorView, Place, PlanView, Processing, StateView, WatermarkView
from dsv2.state import RedistributionMode, TtlTimeCharacteristic
from dsv2.watermark.event_time import EVENT_TIME, IDLE_STATUS, USE_PROCESSING_TIME

_EVENT_TIME_NAMES = {
    EVENT_TIME: "event time",
    IDLE_STATUS: "idle status",
    USE_PROCESSING_TIME: "processing time as event time",
}
_PLACES = {
    Place.SOURCE_TASK: "in the tasks that read the source",
    Place.DRIVER: "on the driver",
    Place.SINK_TASK: "in parallel",
}
_UNITS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}
_PROCESSING = {
    Processing.BATCHES: "called with batches",
    Processing.STAMPED_BATCHES: "called with batches, if records have timestamps",
    Processing.TABLES: "called with Arrow tables",
    Processing.IN_FLIGHT: "called for several records at the same time",
}


def headline(view: PlanView) -> str:
    """The mode and size of the plan."""
    operators = counted(len(view.operators), "operator")
    if view.error is not None:
        return f"{view.mode}, {operators}, cannot be built"
    sent = (edge for edge in view.edges if not (edge.chained or edge.read))
    exchanges = sum(view.operators[edge.target].kind is not OperatorKind.SINK for edge in sent)
    return f"{view.mode}, {operators}, {counted(view.levels, 'level')}, {counted(exchanges, 'exchange')}"


def about(operator: OperatorView) -> str:
    """Describe an operator in one line: its function, and for sources and sinks how they run."""
    parts = [operator.function.text]
    if operator.bounded is not None:
        parts.append("bounded" if operator.bounded else "unbounded")
    if operator.kind is OperatorKind.SINK and operator.place is not None:
        parts.append(_PLACES[operator.place])
    return ", ".join(parts)


def place_text(view: PlanView, operator: OperatorView) -> str:
    """Return the place in which a source or a function chained to one runs, or ""."""
    if operator.read_by is not None:
        return f"read by the subtasks of {view.operators[operator.read_by].title}"
    is_source = operator.kind is OperatorKind.SOURCE
    if is_source or operator.level != 0:
        return ""
    reader = view.operators[operator.chain].read_by
    return _PLACES[Place.SOURCE_TASK] if reader is None else f"in the subtasks of {view.operators[reader].title}"


def details(operator: OperatorView) -> Iterator[str]:
    """Yield the special properties of an operator, one phrase each."""
    if operator.layout:
        yield f"keeps {_layout_text(operator.layout)}"
    if operator.states:
        yield f"state: {', '.join(map(_state_text, operator.states))}"
    if operator.declares:
        yield f"declares: {', '.join(map(watermark_name, operator.declares))}"
    of_one = [f"{one.method} ({watermark_name(one.watermark)})" for one in operator.watermark_handlers]
    if operator.handlers or of_one:
        yield f"handles watermarks: {', '.join([*operator.handlers, *of_one])}"
    if operator.addressed:
        yield f"addressed by: {', '.join(map(watermark_name, operator.addressed))}"
    if operator.groups:
        yield f"groups: {', '.join(operator.groups)}"
    if operator.event_time:
        yield "uses event time"
    if operator.broadcast_wait:
        yield f"waits for the broadcast side: {operator.broadcast_wait}"
    if operator.error_policy:
        yield f"on error: {operator.error_policy}"
    if operator.side_outputs:
        yield f"side outputs: {', '.join(operator.side_outputs)}"
    if operator.processing in _PROCESSING:
        moves = operator.kind in (OperatorKind.SOURCE, OperatorKind.SINK)
        yield "moves columns" if moves else _PROCESSING[operator.processing]


def exchange_text(edge: EdgeView) -> str:
    """The exchange of an edge, or why it has none."""
    if edge.chained:
        return "chained"
    if edge.read:
        return "read by its subtasks"
    return "unknown exchange" if edge.exchange is None else edge.exchange.value


def numbered_edge_text(view: PlanView, edge: EdgeView) -> str:
    """The exchange of an edge, after the number of the input if there are several."""
    several = len(view.edges_into(view.operators[edge.target])) > 1
    return f"{edge.input + 1}: {edge_text(edge)}" if several else edge_text(edge)


def edge_text(edge: EdgeView) -> str:
    """Describe the way of records across an edge."""
    text = exchange_text(edge)
    if edge.key is not None and not edge.chained:
        version = "" if edge.key.version is None else f" (version {edge.key.version})"
        how = " by" if edge.exchange is Exchange.HASH else ", keyed by"
        text = f"{text}{how} {edge.key.text}{version}"
    if edge.without:
        text = f"{text}, without {', '.join(edge.without)}"
    return f"{edge.output}: {text}" if isinstance(edge.output, str) else text


def watermark_name(identifier: str) -> str:
    """An identifier, or the plain name of one of event time."""
    return _EVENT_TIME_NAMES.get(identifier, identifier)


def watermark_rules(watermark: WatermarkView) -> str:
    """Describe how the values of a watermark are combined, delivered and forwarded."""
    rules = [watermark.type]
    if watermark.barrier is None:
        rules += [watermark.combination]
        rules += ["waits for all channels"] * watermark.waits_for_all
        rules += ["aligned"] * watermark.aligned
    else:
        rules += ["barrier", watermark.barrier]
    across = watermark.across_inputs_combination
    rules += [f"combined across inputs{f' with {across}' if across else ''}"] * watermark.across_inputs
    rules += [] if watermark.delivery == "on change" else [f"delivered {watermark.delivery}"]
    rules += [] if watermark.forwarded else ["not forwarded"]
    rules += [f"about one {watermark.key_type} key"] if watermark.key_type else []
    if watermark.expires_after_ms is not None:
        rules.append(f"expires after {duration(watermark.expires_after_ms)}")
    return ", ".join(rules)


def concerns(view: PlanView, finding: Finding) -> str:
    """The operators that a finding concerns, first the one to look at."""
    first = view.operators[finding.operators[0]]
    return f"{first.title} ({short_location(first.location)})"


def short_location(location: str) -> str:
    """A file and line, relative to the current directory if the file is in it."""
    file, _, line = location.rpartition(":")
    if not os.path.isabs(file):
        return location
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the current directory has been removed, or is on another drive
        return location
    return location if relative.startswith(os.pardir) else f"{relative}:{line}"


def _state_text(state: StateView) -> str:
    facts = [f"{state.kind.removesuffix('State').lower()} of {' to '.join(state.types)}"]
    if state.mode is not RedistributionMode.NONE:
        facts.append(state.mode.value)
    if state.ttl_ms is not None:
        clock = ", event time" if state.ttl_time is TtlTimeCharacteristic.EVENT_TIME else ""
        facts.append(f"time to live {duration(state.ttl_ms)}{clock}")
    return f"{state.name} ({', '.join(facts)})"


def _layout_text(layout: str) -> str:
    """A state layout, which has durations in ms as it is stored in checkpoints, for people."""
    text = layout.replace(" from 0 ms", "").replace(", 0 ms late", "")
    text = re.sub(r"\b(\d+) ms\b", lambda found: duration(int(found[1])), text)
    return re.sub(r"windows of (\d+ \w+) every \1\b", r"windows of \1", text)


def duration(milliseconds: int) -> str:
    """A duration in the largest unit that divides it."""
    number, unit = next((milliseconds // size, unit) for unit, size in _UNITS.items() if milliseconds % size == 0)
    return f"{number} {unit}"
