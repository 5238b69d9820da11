"""A plan as an SVG image: chains as boxes with their operators, from the sources at the top to the sinks.

It needs no font, script or file, follows the light or dark mode of its viewer, and contains the plan as text for
screen readers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dsv2.explain.layout import Layout, Point, Size, lay_out
from dsv2.explain.measure import cut, width_of
from dsv2.explain.model import EdgeView, OperatorView, PlanView
from dsv2.explain.stack import LINK, Stack, links, stacked
from dsv2.explain.svg_parts import arrow, svg_document, xml_text
from dsv2.explain.text import to_text
from dsv2.explain.wording import about, details, edge_text, headline, short_location
from dsv2.findings.finding import Severity
from dsv2.graph import OperatorKind
from dsv2.printable import printable

__all__ = ("to_svg",)

_MARGIN = 16
_HEADER = 46  # the title of the plan
_PAD = 10  # around cards and between text and border
_LABEL = 18  # the line with the level of a box
_LINE = 16
_TITLE = 20
_LEAST, _MOST = 170, 300  # the width of a card
_SPACE = 34  # between rows, without labels of edges


@dataclass(frozen=True, slots=True)
class _Card:
    """One operator: its lines of text, and its place in the box of its chain."""

    operator: OperatorView
    lines: Sequence[str]
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class _Box:
    """A chain."""

    label: str
    cards: Sequence[_Card]
    width: float
    height: float
    stack: Stack


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
        f'<text class="plan" x="{_MARGIN}" y="28">{xml_text(title)}</text>',
        *(
            f'<text class="error" x="{_MARGIN}" y="{48 + _LINE * n}">{xml_text(line)}</text>'
            for n, line in enumerate(error)
        ),
        f'<g transform="translate({(width - layout.width) / 2:.1f} {header})">',
        *_edges(boxes, edges, ends, layout, view),
        *(line for head, box in boxes.items() for line in _drawn(view, box, layout.places[head])),
        "</g>",
    ]
    return svg_document(width, height, title, to_text(view), parts)


def _box(view: PlanView, chain: Sequence[OperatorView]) -> _Box:
    shown = {operator.id: _lines(view, operator) for operator in chain}
    widest = max(width_of(line, 12) for lines in shown.values() for line in lines)
    titles = max(width_of(_titled(operator), 13, bold=True) for operator in chain)
    width = min(max(widest, titles + 24, _LEAST), _MOST) + 2 * _PAD
    stack = stacked(chain, view.edges)
    cards = []
    top = float(_LABEL + _PAD / 2)
    for operator in stack.operators:
        lines = [cut(line, width - 2 * _PAD, 12) for line in shown[operator.id]]
        height = _TITLE + _LINE * len(lines) + _PAD
        cards.append(_Card(operator, lines, top, height))
        top += height + LINK
    label = _label(chain[0])
    outer = max(width + stack.rail + 2 * _PAD, width_of(label, 11) + 2 * _PAD)
    return _Box(label, cards, outer, top - LINK + _PAD, stack)


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
    yield f'<text class="level" x="{x + _PAD:.1f}" y="{y + 15:.1f}">{xml_text(box.label)}</text>'
    tops = {card.operator.id: y + card.top for card in box.cards}
    left = x + _PAD + box.stack.rail
    width = box.width - _PAD - (left - x)

    def attributes(source: int, target: int) -> str:
        return f'class="line inside" data-edge="{source}-{target}-0"'

    yield from links(box.stack, tops, left, width, _TITLE - 5, attributes)
    for card in box.cards:
        yield from _card(view, card, left, y + card.top, width)


def _card(view: PlanView, card: _Card, x: float, y: float, width: float) -> Iterator[str]:
    operator = card.operator
    kind = {OperatorKind.SOURCE: "source", OperatorKind.SINK: "sink"}.get(operator.kind, "function")
    is_bad = view.error is not None and f" {operator.location}" in view.error
    tooltip = "\n".join([f"{operator.title}: {short_location(operator.location)}", *_lines(view, operator)])
    found = [finding for finding in view.findings if finding.operators[0] == operator.id]
    tooltip += "".join(f"\n{finding.severity.value}: {finding.message} {finding.advice}" for finding in found)
    yield f'<g data-operator="{operator.id}"><title>{xml_text(tooltip, lines=True)}</title>'
    yield (
        f'<rect class="card{" bad" * is_bad}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{card.height:.1f}" '
        f'rx="5"/><rect class="{kind}" x="{x:.1f}" y="{y + 5:.1f}" width="3" height="{card.height - 10:.1f}"/>'
    )
    parallelism = f"×{operator.parallelism}"
    room = width - 3 * _PAD - width_of(parallelism, 12) - (16 if found else 0)
    title = cut(printable(operator.title), room, 13, bold=True)
    yield f'<text class="title" x="{x + _PAD:.1f}" y="{y + 18:.1f}">{xml_text(title)}</text>'
    right = x + width - _PAD
    yield f'<text x="{right:.1f}" y="{y + 18:.1f}" text-anchor="end">{parallelism}</text>'
    if found:
        worst = "warning" if any(one.severity is Severity.WARNING for one in found) else "note"
        sign = right - width_of(parallelism, 12) - 8
        yield f'<text class="{worst}" x="{sign:.1f}" y="{y + 18:.1f}" text-anchor="end">⚠</text>'
    for number, line in enumerate(card.lines):
        yield f'<text x="{x + _PAD:.1f}" y="{y + 18 + _LINE * (number + 1):.1f}">{xml_text(line)}</text>'
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
        yield f'<path class="line" data-edge="{edge.source}-{edge.target}-{edge.input}" d="{path}"/>{arrow(x, y)}'
        labels.append(_edge_label(boxes[ends[number][1]], edge, layout.places[ends[number][1]], (x, y), line, view))
    yield from labels


def _edge_label(box: _Box, edge: EdgeView, place: Point, port: Point, line: int, view: PlanView) -> str:
    several = len(view.edges_into(view.operators[edge.target])) > 1
    full = printable(f"{edge.input + 1}: {edge_text(edge)}" if several else edge_text(edge))
    text = cut(full, box.width, 11)
    half = width_of(text, 11) / 2
    x = min(max(port[0], place[0] + half), place[0] + box.width - half)
    tooltip = f"<title>{xml_text(full)}</title>"
    y = port[1] - 11 - _LINE * line
    return f'<text class="on-edge" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{tooltip}{xml_text(text)}</text>'


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
