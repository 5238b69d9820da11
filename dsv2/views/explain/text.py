"""A plan as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from dsv2.base.printable import printable
from dsv2.graph import OperatorKind
from dsv2.plan_view.finding import Finding, Severity
from dsv2.plan_view.model import OperatorView, PlanView, WatermarkView
from dsv2.views.explain.channels.roles import is_blocked
from dsv2.views.explain.wording import (
    about,
    concerns,
    details,
    edge_text,
    headline,
    place_text,
    short_location,
    watermark_name,
    watermark_rules,
)

_WIDTH = 100


def to_text(view: PlanView) -> str:
    """Return the plan as lines of at most about 100 characters, without a final line break."""
    sections = [
        [printable(f"{view.job_name}: {headline(view)}")],
        [] if view.error is None else ["Error", *_wrapped(view.error)],
        *(_operators(view, title, operators) for title, operators in _groups(view)),
        _watermarks(view),
        _runtime(view),
        *(finding_lines(view, severity) for severity in Severity),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def finding_lines(view: PlanView, severity: Severity) -> list[str]:
    """Return the findings of one severity, with a title, or nothing."""
    found = [finding for finding in view.findings if finding.severity is severity]
    title = {Severity.WARNING: "Warnings", Severity.NOTE: "Notes"}[severity]
    return [title, *(line for finding in found for line in _finding(view, finding))] if found else []


def _groups(view: PlanView) -> Iterator[tuple[str, list[OperatorView]]]:
    if view.error is not None:
        yield "Operators", list(view.operators)
        return
    for level in range(view.levels + 1):
        operators = [one for chain in view.chains.values() for one in chain if one.level == level]
        yield ("Sources" if level == 0 else f"Level {level}"), operators
    yield "Sinks", [operator for operator in view.operators if operator.kind is OperatorKind.SINK]


def _operators(view: PlanView, title: str, operators: list[OperatorView]) -> list[str]:
    return [title, *(line for operator in operators for line in _operator(view, operator))] if operators else []


def _operator(view: PlanView, operator: OperatorView) -> Iterator[str]:
    uid = "" if operator.title == operator.name or operator.kind is OperatorKind.SOURCE else f" ({operator.name})"
    kind = f"{operator.kind.value} x{operator.parallelism}"
    place = short_location(operator.location)
    yield f"  {printable(operator.title)}{printable(uid)}  [{kind}]  {printable(about(operator))}  {printable(place)}"
    for edge in view.edges_into(operator):
        source = view.operators[edge.source]
        where = "" if edge.key is None or edge.chained or edge.key.location is None else edge.key.location
        line = f"{edge_text(edge)}{f'  {short_location(where)}' if where else ''}"
        number = f"input {edge.input + 1} " if len(view.edges_into(operator)) > 1 else ""
        yield f"    {number}from {printable(source.title)}: {printable(line)}"
    for phrase in filter(None, (place_text(view, operator), *details(operator))):
        yield from _wrapped(phrase, "    ", "      ")


def _watermarks(view: PlanView) -> list[str]:
    lines = [line for watermark in view.watermarks for line in _watermark(view, watermark)]
    return ["Watermarks", *lines] if lines else []


def _watermark(view: PlanView, watermark: WatermarkView) -> Iterator[str]:
    yield f"  {printable(watermark_name(watermark.identifier))}  [{watermark_rules(watermark)}]"
    yield from _wrapped(f"declared by {_titles(view, watermark.declared_by)}", "    ", "      ")
    if watermark.addressed_to:
        yield from _wrapped(f"addressed to {_titles(view, watermark.addressed_to)}", "    ", "      ")
    yield from _wrapped(f"can reach {_titles(view, watermark.received_by)}", "    ", "      ")
    yield from _wrapped(f"handled by {_titles(view, watermark.handled_by)}", "    ", "      ")
    if watermark.barrier is not None:
        yield from _wrapped(f"blocks channels in {_titles(view, _blocking(view, watermark))}", "    ", "      ")


def _blocking(view: PlanView, watermark: WatermarkView) -> list[int]:
    """The operators whose channels the barrier blocks."""
    edges = [edge for edge in view.edges if is_blocked(view, edge, watermark)]
    return [number for number in watermark.received_by if any(edge.target == number for edge in edges)]


def _titles(view: PlanView, operators: Iterable[int]) -> str:
    return ", ".join(view.operators[number].title for number in operators) or "no function"


def _runtime(view: PlanView) -> list[str]:
    if view.runtime is None:
        return []
    facts = [f"  {fact.name}: {fact.value}" for fact in view.runtime.facts]
    refusal = "" if view.runtime.refusal is None else f"refuses this plan: {view.runtime.refusal}"
    return [f"Runtime: {view.runtime.name}", *facts, *_wrapped(refusal)]


def _finding(view: PlanView, finding: Finding) -> Iterator[str]:
    yield from _wrapped(f"{concerns(view, finding)} {finding.message}", f"  [{finding.code}] ", "    ")
    yield from _wrapped(finding.advice, "    ", "    ")


def _wrapped(text: str, first: str = "  ", later: str = "  ") -> list[str]:
    wrapper = textwrap.TextWrapper(_WIDTH, first, later, break_long_words=False, break_on_hyphens=False)
    lines: list[str] = []
    for line in text.splitlines():
        lines += wrapper.wrap(printable(line))
        wrapper.initial_indent = later
    return lines
