"""The part of an operator's subtasks in a watermark's way, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsv2.base.quantities import counted
from dsv2.graph import OperatorKind
from dsv2.plan_view.model import EdgeView, OperatorView, PlanView, WatermarkView


def roles_of(view: PlanView, operator: OperatorView, watermark: WatermarkView) -> Iterator[str]:
    """Describe what each subtask of ``operator`` does with ``watermark``, one phrase each."""
    if operator.id in watermark.declared_by:
        yield "declares it"
    if operator.id not in watermark.received_by:
        return
    edges = view.edges_into(operator)
    if operator.kind is OperatorKind.UNION and not watermark.forwarded:
        yield "does not pass it on"
        return
    carrying = [edge for edge in edges if watermark.identifier in edge.carries]
    ends = bool(watermark.key_type) and any(edge.key is not None for edge in edges)
    if watermark.barrier is not None:
        yield _barrier(edges)
    elif watermark.key_type:
        if ends:
            yield from (f"for each key: {phrase}" for phrase in _combined(operator, edges, carrying, watermark))
    else:
        yield from _combined(operator, edges, carrying, watermark)
    passes_by = bool(watermark.addressed_to) and operator.id not in watermark.addressed_to
    if passes_by:
        yield "passes it on, not called"
        return
    yield from _calls(operator, watermark)
    if ends or not watermark.forwarded:
        yield "it ends here"
    elif operator.id not in watermark.handled_by:
        yield "passes it on"


def is_blocked(view: PlanView, edge: EdgeView, watermark: WatermarkView) -> bool:
    """Return whether a channel of ``edge`` is blocked after ``watermark`` until other channels have sent theirs."""
    if watermark.identifier not in edge.carries:
        return False
    others = view.edges_into(view.operators[edge.target]) if watermark.barrier is not None else (edge,)
    return (watermark.aligned or watermark.barrier is not None) and _number(others) > 1


def _barrier(edges: Sequence[EdgeView]) -> str:
    number = _number(edges)
    return "one channel, never blocked" if number == 1 else f"cuts {number} channels at one point"


def _combined(
    operator: OperatorView, edges: Sequence[EdgeView], carrying: Sequence[EdgeView], watermark: WatermarkView
) -> Iterator[str]:
    """Describe the combination of values: over the channels of each input, then perhaps over the inputs."""
    how, waits = _function(watermark.combination), ", waits for all" if watermark.waits_for_all else ""
    if operator.kind is OperatorKind.UNION:
        if all(_number([edge]) == 1 for edge in edges):
            yield f"{how} of {counted(len(edges), 'input')}{waits}"
        else:
            yield f"{how} of the channels of each input, then of {counted(len(edges), 'input')}{waits}"
        return
    for edge in carrying:
        number = _number([edge])
        place = f"input {edge.input + 1}: " if len(edges) > 1 else ""
        yield f"{place}{'one channel' if number == 1 else f'{how} of {number} channels{waits}'}"
    if len(edges) > 1 and watermark.across_inputs and watermark.forwarded:
        yield f"forwards {_function(watermark.across_inputs_combination) or how} of both inputs{waits}"


def _calls(operator: OperatorView, watermark: WatermarkView) -> Iterator[str]:
    """The callbacks that receive the watermark."""
    if operator.id not in watermark.handled_by:
        return
    methods = [one.method for one in operator.watermark_handlers if one.watermark == watermark.identifier]
    names = methods or [name for name in operator.handlers if bool(watermark.key_type) == name.startswith("on_key_")]
    when = "" if watermark.delivery == "on change" else f" {watermark.delivery}"
    if names and not operator.event_time:
        yield f"calls {' or '.join(dict.fromkeys(names))}{when}"
    else:
        yield "advances event time" if operator.event_time else "acts on it"


def _function(name: str) -> str:
    """A combination function as in the documentation, such as MIN, or quantile(0.5)."""
    return name.upper() if name.isalpha() else name


def _number(edges: Sequence[EdgeView]) -> int:
    return sum(edge.channels or 1 for edge in edges)
