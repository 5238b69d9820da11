"""A plan as an SVG image: chains as boxes with their operators, from the sources at the top to the sinks.

It needs no font, script or file, follows the light or dark mode of its viewer, and contains the plan as text for
screen readers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dsv2.base.printable import printable
from dsv2.graph import OperatorKind
from dsv2.plan_view.finding import Severity
from dsv2.plan_view.model import EdgeView, OperatorView, PlanView
from dsv2.views.explain.edge_lines import BoxColumn, RoutedLine, routed
from dsv2.views.explain.layout import GraphLayout, Point, Size, lay_out
from dsv2.views.explain.stack import Card, Stack, links, stacked
from dsv2.views.explain.svg_parts import LINE, PAD, card, cut, svg_document, width_of, xml_text
from dsv2.views.explain.text import to_text
from dsv2.views.explain.wording import about, details, headline, numbered_edge_text, short_location

_MARGIN = 16
_HEADER = 46  # the title of the plan
_ABOVE = 23  # the line with the level of a box, above its operators
_LEAST, _MOST = 170, 300  # the width of text in a card
_ALONE = 190  # likewise, in a graph without details
_SPACE = 34  # between rows, without labels of edges
_TURNS = range(10, 40, 6)


@dataclass(frozen=True, slots=True)
class _ChainBox:
    """A chain."""

    label: str
    width: float
    height: float
    stack: Stack

    def column(self, place: Point) -> BoxColumn:
        """The ends of edges at the box at a place."""
        x, y = place
        bottom, middles = y + self.height, self.stack.middles(y + _ABOVE)
        return BoxColumn(x, self.width, y, bottom, x + self.width - PAD, bottom, _TURNS, middles)


def to_svg(view: PlanView) -> str:
    """Return the plan as an SVG document."""
    layout, graph = _graph(view, {operator.id: _lines(operator) for operator in view.operators}, _MOST)
    title = printable(f"{view.job_name}: {headline(view)}")
    width = max(layout.width, width_of(title, 16, bold=True)) + 2 * _MARGIN
    error = (
        [] if view.error is None else textwrap.wrap(printable(view.error), max(40, int((width - 2 * _MARGIN) / 7.5)))
    )
    header = _HEADER + LINE * len(error)
    parts = [
        f'<text class="plan" x="{_MARGIN}" y="28">{xml_text(title)}</text>',
        *(
            f'<text class="error" x="{_MARGIN}" y="{48 + LINE * n}">{xml_text(line)}</text>'
            for n, line in enumerate(error)
        ),
        f'<g transform="translate({(width - layout.width) / 2:.1f} {header})">',
        *graph,
        "</g>",
    ]
    return svg_document(width, layout.height + header + _MARGIN, title, to_text(view), parts)


def graph_svg(view: PlanView, free_lines: int) -> str:
    """Return the operators and edges alone, for pages with the style ``STYLE``. Groups have ``data-operator``: the id.

    ``free_lines``: The height that each operator has below its title, in lines, for what the page adds.
    """
    layout, graph = _graph(view, {operator.id: [""] * free_lines for operator in view.operators}, _ALONE)
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="dsv2-plan" width="{width:.0f}" height="{height:.0f}">'
    return "\n".join((start, f'<g transform="translate({_MARGIN} {_MARGIN})">', *graph, "</g></svg>"))


def _graph(view: PlanView, lines: Mapping[int, Sequence[str]], most: int) -> tuple[GraphLayout, list[str]]:
    """Draw the operators with their ``lines``, which have at most the width ``most``, and the edges between chains."""
    boxes = {head: _box(view, chain, lines, most) for head, chain in view.chains.items()}
    edges = [edge for edge in view.edges if view.operators[edge.source].chain != view.operators[edge.target].chain]
    ends = [(view.operators[edge.source].chain, view.operators[edge.target].chain) for edge in edges]
    incoming = {head: sum(target == head for _, target in ends) for head in boxes}
    sizes = {
        head: Size(box.width, box.height, _SPACE + LINE * incoming[head] if incoming[head] else 0)
        for head, box in boxes.items()
    }
    layout = lay_out(sizes, ends)
    columns = {head: box.column(layout.places[head]) for head, box in boxes.items()}
    lines_of = [(source, edge.source, target) for edge, (source, target) in zip(edges, ends, strict=True)]
    drawn = routed(columns, lines_of, layout.bends)
    parts = [
        *(
            line.drawn(f'class="line" data-edge="{edge.source}-{edge.target}-{edge.input}"')
            for edge, line in zip(edges, drawn, strict=True)
        ),
        *(
            _edge_label(columns[target], edge, line, view)
            for edge, (_, target), line in zip(edges, ends, drawn, strict=True)
        ),
        *(line for head, box in boxes.items() for line in _drawn(view, box, layout.places[head])),
    ]
    return layout, parts


def _box(view: PlanView, chain: Sequence[OperatorView], lines: Mapping[int, Sequence[str]], most: int) -> _ChainBox:
    widest = max(width_of(line, 12) for operator in chain for line in lines[operator.id])
    titles = max(width_of(_titled(operator), 13, bold=True) for operator in chain)
    width = min(max(widest, titles + 24, _LEAST), most) + 2 * PAD
    stack = stacked(chain, view.edges, lines)
    label = _label(chain[0])
    outer = max(width + stack.rail + 2 * PAD, width_of(label, 11) + 2 * PAD)
    return _ChainBox(label, outer, _ABOVE + stack.height + PAD, stack)


def _label(head: OperatorView) -> str:
    if head.kind in (OperatorKind.SOURCE, OperatorKind.SINK):
        return str(head.kind.value).capitalize()
    return "Function" if head.level is None else f"Level {head.level}"


def _titled(operator: OperatorView) -> str:
    return f"{printable(operator.title)} ×{operator.parallelism}"


def _lines(operator: OperatorView) -> list[str]:
    return [printable(line) for line in (about(operator), *details(operator))]


def _drawn(view: PlanView, box: _ChainBox, place: Point) -> Iterator[str]:
    x, y = place
    yield f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="8"/>'
    yield f'<text class="level" x="{x + PAD:.1f}" y="{y + 15:.1f}">{xml_text(box.label)}</text>'
    left = x + PAD + box.stack.rail
    width = box.width - PAD - (left - x)

    def attributes(source: int, target: int) -> str:
        return f'class="line inside" data-edge="{source}-{target}-0"'

    yield from links(box.stack, (left, y + _ABOVE), width, attributes)
    for shown in box.stack.cards:
        yield from _card(view, shown, left, y + _ABOVE + shown.top, width)


def _card(view: PlanView, shown: Card, x: float, y: float, width: float) -> Iterator[str]:
    operator = shown.operator
    is_bad = view.error is not None and f" {operator.location}" in view.error
    tooltip = "\n".join([f"{operator.title}: {short_location(operator.location)}", *_lines(operator)])
    found = [finding for finding in view.findings if finding.operators[0] == operator.id]
    tooltip += "".join(f"\n{finding.severity.value}: {finding.message} {finding.advice}" for finding in found)
    parallelism = f"×{operator.parallelism}"
    room = width - 3 * PAD - width_of(parallelism, 12) - (16 if found else 0)
    title = cut(printable(operator.title), room, 13, bold=True)
    right = x + width - PAD
    yield f'<g data-operator="{operator.id}"><title>{xml_text(tooltip, lines=True)}</title>'
    yield from card(operator.kind, (x, y), Size(width, shown.height), title, shown.lines, " bad" * is_bad)
    yield f'<text x="{right:.1f}" y="{y + 18:.1f}" text-anchor="end">{parallelism}</text>'
    if found:
        worst = "warning" if any(one.severity is Severity.WARNING for one in found) else "note"
        sign = right - width_of(parallelism, 12) - 8
        yield f'<text class="{worst}" x="{sign:.1f}" y="{y + 18:.1f}" text-anchor="end">⚠</text>'
    yield "</g>"


def _edge_label(target: BoxColumn, edge: EdgeView, line: RoutedLine, view: PlanView) -> str:
    full = printable(numbered_edge_text(view, edge))
    text = cut(full, target.width, 11)
    half = width_of(text, 11) / 2
    x = min(max(line.tip[0], target.left + half), target.left + target.width - half)
    tooltip = f"<title>{xml_text(full)}</title>"
    y = line.tip[1] - 11 - LINE * line.place
    return f'<text class="on-edge" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{tooltip}{xml_text(text)}</text>'
