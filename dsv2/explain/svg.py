"""A plan as an SVG image: chains as boxes with their operators, from the sources at the top to the sinks.

It needs no font, script or file, follows the light or dark mode of its viewer, and contains the plan as text for
screen readers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from dsv2.explain.layout import Layout, Point, Size, lay_out
from dsv2.explain.measure import cut, width_of
from dsv2.explain.model import EdgeView, OperatorView, PlanView, Severity
from dsv2.explain.text import to_text
from dsv2.explain.wording import about, details, edge_text, headline, printable, short_location
from dsv2.graph import OperatorKind

__all__ = ("to_svg",)

_MARGIN = 16
_HEADER = 46  # the title of the plan
_PAD = 10  # around cards and between text and border
_LABEL = 18  # the line with the level of a box
_LINE = 16
_TITLE = 20
_LINK = 14  # between chained operators
_RAIL = 14  # left of cards, for links that skip operators
_LANE = 7  # between such links
_LEAST, _MOST = 170, 300  # the width of a card
_SPACE = 34  # between rows, without labels of edges

_STYLE = """
.dsv2-plan { --ink: #1f2933; --soft: #52606d; --line: #7b8794; --paper: #ffffff; --box: #f0f4f8; --edge: #d0d7de;
  --card: #ffffff; --source: #0b7285; --function: #364fc7; --sink: #6741d9; --warn: #b54708; --note: #8a6d00;
  --bad: #c92a2a; font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
@media (prefers-color-scheme: dark) { .dsv2-plan { --ink: #e6edf3; --soft: #a8b3bf; --line: #8b98a5;
  --paper: #0d1117; --box: #161b22; --edge: #30363d; --card: #1f2630; --source: #3bc9db; --function: #91a7ff;
  --sink: #b197fc; --warn: #ffa94d; --note: #ffd43b; --bad: #ff8787; } }
.dsv2-plan .paper { fill: var(--paper); }
.dsv2-plan .box { fill: var(--box); stroke: var(--edge); }
.dsv2-plan .card { fill: var(--card); stroke: var(--edge); }
.dsv2-plan .bad { stroke: var(--bad); stroke-width: 2; }
.dsv2-plan text { fill: var(--soft); font-size: 12px; }
.dsv2-plan .title { fill: var(--ink); font-size: 13px; font-weight: 600; }
.dsv2-plan .plan { fill: var(--ink); font-size: 16px; font-weight: 600; }
.dsv2-plan .error { fill: var(--bad); }
.dsv2-plan .level { font-size: 11px; }
.dsv2-plan .source { fill: var(--source); } .dsv2-plan .function { fill: var(--function); }
.dsv2-plan .sink { fill: var(--sink); }
.dsv2-plan .warning { fill: var(--warn); font-weight: 700; } .dsv2-plan .note { fill: var(--note); font-weight: 700; }
.dsv2-plan .line { fill: none; stroke: var(--line); stroke-width: 1.5; }
.dsv2-plan .inside { stroke-width: 1; }
.dsv2-plan .head { fill: var(--line); }
.dsv2-plan .on-edge { font-size: 11px; paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
"""


@dataclass(frozen=True, slots=True)
class _Card:
    """One operator: its lines of text, and its place in the box of its chain."""

    operator: OperatorView
    lines: Sequence[str]
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class _Box:
    """A chain. ``lanes``: For operators whose links skip others, the place of these links left of the cards."""

    label: str
    cards: Sequence[_Card]
    width: float
    height: float
    rail: float
    lanes: Mapping[int, int]


def to_svg(view: PlanView) -> str:
    """Return the plan as an SVG document."""
    boxes = {head: _box(view, chain) for head, chain in view.chains.items()}
    edges = [edge for edge in view.edges if view.operators[edge.source].chain != view.operators[edge.target].chain]
    ends = [(view.operators[edge.source].chain, view.operators[edge.target].chain) for edge in edges]
    incoming = {head: sum(target == head for _, target in ends) for head in boxes}
    sizes = {
        head: Size(box.width, box.height, _SPACE + _LINE * incoming[head] if incoming[head] else 0)
        for head, box in boxes.items()
    }
    layout = lay_out(sizes, ends)
    title = printable(f"{view.job_name}: {headline(view)}")
    width = max(layout.width, width_of(title, 16, bold=True)) + 2 * _MARGIN
    error = (
        [] if view.error is None else textwrap.wrap(printable(view.error), max(40, int((width - 2 * _MARGIN) / 7.5)))
    )
    header = _HEADER + _LINE * len(error)
    height = layout.height + header + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dsv2-plan" role="img" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" style="max-width: 100%; height: auto">',
        f"<title>{_text(title)}</title>",
        f"<desc>{_text(to_text(view), lines=True)}</desc>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}" rx="8"/>',
        f'<text class="plan" x="{_MARGIN}" y="28">{_text(title)}</text>',
        *(
            f'<text class="error" x="{_MARGIN}" y="{48 + _LINE * n}">{_text(line)}</text>'
            for n, line in enumerate(error)
        ),
        f'<g transform="translate({(width - layout.width) / 2:.1f} {header})">',
        *_edges(boxes, edges, ends, layout, view),
        *(line for head, box in boxes.items() for line in _drawn(view, box, layout.places[head])),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(view: PlanView, chain: Sequence[OperatorView]) -> _Box:
    shown = {operator.id: _lines(view, operator) for operator in chain}
    widest = max(width_of(line, 12) for lines in shown.values() for line in lines)
    titles = max(width_of(_titled(operator), 13, bold=True) for operator in chain)
    width = min(max(widest, titles + 24, _LEAST), _MOST) + 2 * _PAD
    above = {edge.target: edge.source for edge in view.edges if edge.chained}
    chain = _depth_first(chain, above)
    skipping = dict.fromkeys(above[one.id] for before, one in pairwise(chain) if above[one.id] != before.id)
    lanes = {operator: lane for lane, operator in enumerate(skipping)}
    rail = _RAIL + _LANE * (len(lanes) - 1) if lanes else 0
    cards = []
    top = float(_LABEL + _PAD / 2)
    for operator in chain:
        lines = [cut(line, width - 2 * _PAD, 12) for line in shown[operator.id]]
        height = _TITLE + _LINE * len(lines) + _PAD
        cards.append(_Card(operator, lines, top, height))
        top += height + _LINK
    label = _label(chain[0])
    outer = max(width + rail + 2 * _PAD, width_of(label, 11) + 2 * _PAD)
    return _Box(label, cards, outer, top - _LINK + _PAD, rail, lanes)


def _depth_first(chain: Sequence[OperatorView], above: Mapping[int, int]) -> list[OperatorView]:
    """The operators of a chain, each followed by those that read it, so that most links lead to the next one."""
    found: list[OperatorView] = []
    waiting = [chain[0]]
    while waiting:
        found.append(waiting.pop())
        waiting += [one for one in reversed(chain) if above.get(one.id) == found[-1].id]
    return found


def _label(head: OperatorView) -> str:
    if head.kind in (OperatorKind.SOURCE, OperatorKind.SINK):
        return str(head.kind.value).capitalize()
    return "Function" if head.level is None else f"Level {head.level}"


def _titled(operator: OperatorView) -> str:
    return f"{printable(operator.title)} ×{operator.parallelism}"


def _lines(view: PlanView, operator: OperatorView) -> list[str]:
    return [printable(line) for line in (about(operator), *details(operator))]


def _drawn(view: PlanView, box: _Box, place: Point) -> Iterator[str]:
    x, y = place
    yield f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="8"/>'
    yield f'<text class="level" x="{x + _PAD:.1f}" y="{y + 15:.1f}">{_text(box.label)}</text>'
    tops = {card.operator.id: y + card.top for card in box.cards}
    above = {edge.target: edge.source for edge in view.edges if edge.chained}
    left = x + _PAD + box.rail
    for before, card in pairwise(box.cards):
        upstream = above[card.operator.id]
        link = f'data-edge="{upstream}-{card.operator.id}-0"'
        top = y + card.top
        if upstream == before.operator.id:
            middle = left + (box.width - _PAD - (left - x)) / 2
            path = f"M{middle:.1f} {top - _LINK:.1f}V{top - 5:.1f}"
            yield f'<path class="line inside" {link} d="{path}"/>{_arrow(middle, top)}'
        else:
            start, end = tops[upstream] + _TITLE - 5, top + _TITLE - 5
            lane = left - 9 - _LANE * box.lanes[upstream]
            path = f"M{left:.1f} {start:.1f}H{lane:.1f}V{end:.1f}H{left - 5:.1f}"
            yield f'<path class="line inside" {link} d="{path}"/>{_arrow(left, end, right=True)}'
    for card in box.cards:
        yield from _card(view, card, left, y + card.top, box.width - _PAD - (left - x))


def _card(view: PlanView, card: _Card, x: float, y: float, width: float) -> Iterator[str]:
    operator = card.operator
    kind = {OperatorKind.SOURCE: "source", OperatorKind.SINK: "sink"}.get(operator.kind, "function")
    is_bad = view.error is not None and f" {operator.location}" in view.error
    tooltip = "\n".join([f"{operator.title}: {short_location(operator.location)}", *_lines(view, operator)])
    found = [finding for finding in view.findings if finding.operators[0] == operator.id]
    tooltip += "".join(f"\n{finding.severity.value}: {finding.message} {finding.advice}" for finding in found)
    yield f'<g data-operator="{operator.id}"><title>{_text(tooltip, lines=True)}</title>'
    yield (
        f'<rect class="card{" bad" * is_bad}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{card.height:.1f}" '
        f'rx="5"/><rect class="{kind}" x="{x:.1f}" y="{y + 5:.1f}" width="3" height="{card.height - 10:.1f}"/>'
    )
    parallelism = f"×{operator.parallelism}"
    room = width - 3 * _PAD - width_of(parallelism, 12) - (16 if found else 0)
    title = cut(printable(operator.title), room, 13, bold=True)
    yield f'<text class="title" x="{x + _PAD:.1f}" y="{y + 18:.1f}">{_text(title)}</text>'
    right = x + width - _PAD
    yield f'<text x="{right:.1f}" y="{y + 18:.1f}" text-anchor="end">{parallelism}</text>'
    if found:
        worst = "warning" if any(one.severity is Severity.WARNING for one in found) else "note"
        sign = right - width_of(parallelism, 12) - 8
        yield f'<text class="{worst}" x="{sign:.1f}" y="{y + 18:.1f}" text-anchor="end">⚠</text>'
    for number, line in enumerate(card.lines):
        yield f'<text x="{x + _PAD:.1f}" y="{y + 18 + _LINE * (number + 1):.1f}">{_text(line)}</text>'
    yield "</g>"


def _edges(
    boxes: dict[int, _Box],
    edges: Sequence[EdgeView],
    ends: Sequence[tuple[int, int]],
    layout: Layout,
    view: PlanView,
) -> Iterator[str]:
    starts, arrivals = _ports(boxes, edges, ends, layout, view)
    labels = []
    for number, edge in enumerate(edges):
        points = [*starts[number], *(point for bend in layout.bends[number] for point in bend)]
        x, y, line = arrivals[number]
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        if len(starts[number]) > 1:  # out of the side of the box, then down
            (_, side), (turn, bottom) = starts[number]
            path += f"H{turn - 5:.1f}Q{turn:.1f} {side:.1f} {turn:.1f} {side + 5:.1f}V{bottom:.1f}"
        legs = [points[len(starts[number]) - 1], *points[len(starts[number]) :], (x, y - 5)]
        for leg, (start, end) in enumerate(pairwise(legs)):
            if leg % 2 and leg < len(legs) - 1:
                path += f"L{end[0]:.1f} {end[1]:.1f}"  # through a row
                continue
            bend = (end[1] - start[1]) / 2
            path += f"C{start[0]:.1f} {start[1] + bend:.1f} {end[0]:.1f} {end[1] - bend:.1f} {end[0]:.1f} {end[1]:.1f}"
        yield f'<path class="line" data-edge="{edge.source}-{edge.target}-{edge.input}" d="{path}"/>{_arrow(x, y)}'
        labels.append(_edge_label(boxes[ends[number][1]], edge, layout.places[ends[number][1]], (x, y), line, view))
    yield from labels


def _edge_label(box: _Box, edge: EdgeView, place: Point, port: Point, line: int, view: PlanView) -> str:
    several = len(view.edges_into(view.operators[edge.target])) > 1
    full = printable(f"{edge.input + 1}: {edge_text(edge)}" if several else edge_text(edge))
    text = cut(full, box.width, 11)
    half = width_of(text, 11) / 2
    x = min(max(port[0], place[0] + half), place[0] + box.width - half)
    tooltip = f"<title>{_text(full)}</title>"
    y = port[1] - 11 - _LINE * line
    return f'<text class="on-edge" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{tooltip}{_text(text)}</text>'


def _ports(
    boxes: dict[int, _Box],
    edges: Sequence[EdgeView],
    ends: Sequence[tuple[int, int]],
    layout: Layout,
    view: PlanView,
) -> tuple[list[list[Point]], list[tuple[float, float, int]]]:
    """Where each edge leaves its box, and where it arrives, with the line of its label."""
    centre = {head: place[0] + boxes[head].width / 2 for head, place in layout.places.items()}
    starts: list[list[Point]] = [[] for _ in edges]
    arrivals: list[tuple[float, float, int]] = [(0, 0, 0) for _ in edges]
    for head, box in boxes.items():
        (x, y), bottom = layout.places[head], layout.places[head][1] + box.height

        def first_bend(number: int) -> float:
            bends = layout.bends[number]
            return bends[0][0][0] if bends else centre[ends[number][1]]

        def last_bend(number: int) -> float:
            bends = layout.bends[number]
            return bends[-1][1][0] if bends else centre[ends[number][0]]

        last = box.cards[-1].operator.id
        below = sorted((n for n, end in enumerate(ends) if end[0] == head and edges[n].source == last), key=first_bend)
        for place, number in enumerate(below):
            starts[number] = [(x + box.width * (place + 1) / (len(below) + 1), bottom)]
        aside = [n for n, end in enumerate(ends) if end[0] == head and edges[n].source != last]
        for place, number in enumerate(aside):
            card = next(card for card in box.cards if card.operator.id == edges[number].source)
            turn = x + box.width + 10 + 6 * (place % 5)
            starts[number] = [(x + box.width - _PAD, y + card.top + card.height / 2), (turn, bottom)]
        arriving = sorted((n for n, end in enumerate(ends) if end[1] == head), key=last_bend)
        for place, number in enumerate(arriving):
            arrivals[number] = (x + box.width * (place + 1) / (len(arriving) + 1), y, place)
    return starts, arrivals


def _arrow(x: float, y: float, *, right: bool = False) -> str:
    """The head of an arrow whose tip is at a point."""
    base = ((x - 6, y - 4), (x - 6, y + 4)) if right else ((x - 4, y - 6), (x + 4, y - 6))
    corners = " ".join(f"{across:.1f},{down:.1f}" for across, down in base)
    return f'<polygon class="head" points="{x:.1f},{y:.1f} {corners}"/>'


def _text(text: str, *, lines: bool = False) -> str:
    """Text as XML, in one line unless ``lines`` is set."""
    return escape("\n".join(map(printable, text.split("\n"))) if lines else text)
