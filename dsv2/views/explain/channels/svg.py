"""The channels of a plan as an SVG image: a card for each operator in each subtask, and an arrow for each channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dsv2.base.printable import printable
from dsv2.views.explain.channels.model import ChannelsView, EdgeChannels, Mark, OperatorChannels, shown_subtasks
from dsv2.views.explain.channels.text import to_text
from dsv2.views.explain.edge_lines import BoxColumn, routed
from dsv2.views.explain.layout import GraphLayout, Point, Size, lay_out
from dsv2.views.explain.stack import Card, Stack, links, stacked
from dsv2.views.explain.svg_parts import LINE, PAD, card, cut, svg_document, width_of, wrapped, xml_text

_MARGIN = 16
_HEADER = 44  # the title
_LEAST, _MOST = 110, 176  # the width of text in a card
_GAP = 18  # between subtasks
_HIDDEN = 76  # between subtasks, where others are left out
_SPACE = 56  # between rows, without labels of edges
_SAMPLE = 26  # the line of an entry of the legend
_TURNS = (6, 9, 12)

_CHANNELS = """
.dsv2-plan .carries, .dsv2-plan .of-key { stroke: var(--function); stroke-width: 2; }
.dsv2-plan .carries + .head, .dsv2-plan .of-key + .head { fill: var(--function); }
.dsv2-plan .of-other-keys { stroke-width: 1; }
.dsv2-plan .bare { stroke-dasharray: 3 4; }
.dsv2-plan .gate { stroke: var(--warn); stroke-width: 3; }
"""

_Ends: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _SubtaskBox:
    """The subtasks of a chain.

    Attributes:
        stack: The operators.
        card: The width of a card.
        columns: The left border of each subtask that is drawn, by its number.
        hidden: The number of subtasks that are left out.
        width: The width of the box.
        height: The height of the box.
    """

    stack: Stack
    card: float
    columns: Mapping[int, float]
    hidden: int
    width: float
    height: float

    def column(self, subtask: int, place: Point) -> BoxColumn:
        """The ends of channels at a subtask of the box at a place."""
        left, top, bottom = place[0] + self.columns[subtask], place[1], place[1] + self.height
        middles = self.stack.middles(top + PAD)
        return BoxColumn(left, self.card, top + PAD, bottom - PAD, left + self.card, bottom, _TURNS, middles)


def to_svg(view: ChannelsView) -> str:
    """Return the channels as an SVG document."""
    chains = view.chains
    head_of = {one.operator.id: head for head, chain in chains.items() for one in chain}
    boxes = {head: _box(view, chain) for head, chain in chains.items()}
    edges = [edge for edge in view.edges if not edge.edge.chained]
    ends = [(head_of[edge.edge.source], head_of[edge.edge.target]) for edge in edges]
    leaving = {head: sum(source == head for source, _ in ends) for head in boxes}
    sizes = {
        head: Size(
            box.width, box.height, max((_SPACE + LINE * leaving[one] for one, to in ends if to == head), default=0)
        )
        for head, box in boxes.items()
    }
    layout = lay_out(sizes, ends)
    width = max(layout.width, width_of(view.title, 16, bold=True)) + 2 * _MARGIN
    width = max(width, *(width_of(text, 12) + _SAMPLE + 2 * _MARGIN for text in (*view.legend.values(), "")))
    rules = wrapped(view.rules, width - 2 * _MARGIN, 12)
    header = _HEADER + LINE * len(rules)
    legend = header + layout.height + 28
    height = legend + LINE * len(view.legend)
    left = (width - layout.width) / 2
    parts = [
        f'<text class="plan" x="{_MARGIN}" y="28">{xml_text(view.title)}</text>',
        *(f'<text x="{_MARGIN}" y="{46 + LINE * number}">{xml_text(line)}</text>' for number, line in enumerate(rules)),
        f'<g transform="translate({left:.1f} {header})">',
        *(_background(box, layout.places[head]) for head, box in boxes.items()),
        *_edges(boxes, edges, ends, layout),
        *(line for head, box in boxes.items() for line in _subtasks(view, box, layout.places[head])),
        *_labels(boxes, edges, ends, layout),
        "</g>",
        *_legend(view, legend),
    ]
    return svg_document(width, height, view.title, to_text(view), parts, style=_CHANNELS)


def _box(view: ChannelsView, chain: Sequence[OperatorChannels]) -> _SubtaskBox:
    lines = {one.operator.id: [line for role in one.roles for line in wrapped(role, _MOST, 12)] for one in chain}
    stack = stacked([one.operator for one in chain], [edge.edge for edge in view.edges], lines)
    subtasks, hidden = shown_subtasks(chain[0].operator.parallelism)
    texts = [width_of(line, 12) for of_one in lines.values() for line in of_one]
    titles = [width_of(f"{printable(one.operator.title)} {subtasks[-1]}", 13, bold=True) for one in chain]
    card = min(max(*texts, *titles, _LEAST), _MOST) + 2 * PAD
    columns, x = {}, PAD + stack.rail
    for number in subtasks:
        x += (_HIDDEN - _GAP) * (hidden > 0 and number == subtasks[-1])
        columns[number] = x
        x += card + _GAP + stack.rail
    inner = x - _GAP - stack.rail + PAD
    exchanges = [edge for edge in view.edges if not edge.edge.chained]
    labels = [width_of(one.label, 11) for one in exchanges if lines.keys() & {one.edge.source, one.edge.target}]
    width = max(inner, *labels, 0)
    columns = {number: column + (width - inner) / 2 for number, column in columns.items()}
    return _SubtaskBox(stack, card, columns, hidden, width, stack.height + 2 * PAD)


def _background(box: _SubtaskBox, place: Point) -> str:
    return (
        f'<rect class="box" x="{place[0]:.1f}" y="{place[1]:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="8"/>'
    )


def _subtasks(view: ChannelsView, box: _SubtaskBox, place: Point) -> Iterator[str]:
    x, y = place
    marks = {(edge.edge.source, edge.edge.target): edge for edge in view.edges if edge.edge.chained}
    for number, column in box.columns.items():

        def attributes(source: int, target: int, subtask: int = number) -> str:
            css = _css(marks[source, target].channels[0].mark)
            return f'class="line {css}" data-channel="{source}.{subtask}-{target}.{subtask}-0"'

        yield from links(box.stack, (x + column, y + PAD), box.card, attributes)
        for one in box.stack.cards:
            yield from _card(view.operators[one.operator.id], one, number, (x + column, y + PAD + one.top), box.card)
    if box.hidden:
        *_, before, last = box.columns.values()
        middle = x + (before + box.card + last) / 2
        for line, text in enumerate(("…", f"{box.hidden} more")):
            top = y + box.height / 2 + LINE * line
            yield f'<text x="{middle:.1f}" y="{top:.1f}" text-anchor="middle">{text}</text>'


def _card(shown: OperatorChannels, one: Card, subtask: int, place: Point, width: float) -> Iterator[str]:
    operator = shown.operator
    room = width - 2 * PAD - width_of(f" {subtask}", 13, bold=True)
    title = f"{cut(printable(operator.title), room, 13, bold=True)} {subtask}"
    tooltip = "\n".join((f"{operator.title}, subtask {subtask}", *shown.roles))
    yield f'<g data-subtask="{operator.id}.{subtask}"><title>{xml_text(tooltip, lines=True)}</title>'
    yield from card(operator.kind, place, Size(width, one.height), title, one.lines)
    yield "</g>"


def _edges(
    boxes: Mapping[int, _SubtaskBox], edges: Sequence[EdgeChannels], ends: Sequence[_Ends], layout: GraphLayout
) -> Iterator[str]:
    """Draw the channels, those that carry the watermark above the others."""
    columns = {
        (head, subtask): box.column(subtask, layout.places[head])
        for head, box in boxes.items()
        for subtask in box.columns
    }
    channels = [(number, channel) for number, edge in enumerate(edges) for channel in edge.channels]
    lines = [
        ((ends[number][0], one.source), edges[number].edge.source, (ends[number][1], one.target))
        for number, one in channels
    ]
    routes = routed(columns, lines, [layout.bends[number] for number, _ in channels])
    order = [Mark.BARE, Mark.OF_OTHER_KEYS, Mark.CARRIES, Mark.OF_KEY]
    drawn = zip(channels, routes, strict=True)
    for (number, channel), line in sorted(drawn, key=lambda one: order.index(one[0][1].mark)):
        edge = edges[number].edge
        name = f"{edge.source}.{channel.source}-{edge.target}.{channel.target}-{edge.input}"
        yield line.drawn(f'class="line {_css(channel.mark)}" data-channel="{name}"')
        if edges[number].blocked:
            yield _gate(line.tip[0], line.tip[1] - 10)


def _labels(
    boxes: Mapping[int, _SubtaskBox], edges: Sequence[EdgeChannels], ends: Sequence[_Ends], layout: GraphLayout
) -> Iterator[str]:
    """Draw the labels of edges at the end where there is no other one, otherwise below the chain that they leave."""
    for head in boxes:
        leaving = [number for number, (source, _) in enumerate(ends) if source == head]
        leaving.sort(key=lambda number: layout.places[ends[number][1]])
        line = 0
        for number in leaving:
            target = ends[number][1]
            arriving = sum(other == target for _, other in ends)
            if len(leaving) > 1 and arriving == 1:
                yield _label(edges[number].label, boxes[target], layout.places[target], -12)
                continue
            text = edges[number].label
            if len(leaving) > 1:
                place = f" input {edges[number].edge.input + 1}" if arriving > 1 else ""
                text = f"{boxes[target].stack.cards[0].operator.title}{place}: {text}"
            yield _label(text, boxes[head], layout.places[head], boxes[head].height + 14 + LINE * line)
            line += 1


def _label(text: str, box: _SubtaskBox, place: Point, down: float) -> str:
    x, y = place[0] + box.width / 2, place[1] + down
    shown = cut(printable(text), max(box.width, _MOST), 11)
    return f'<text class="on-edge" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{xml_text(shown)}</text>'


def _legend(view: ChannelsView, top: float) -> Iterator[str]:
    for line, (mark, text) in enumerate(view.legend.items()):
        y = top + LINE * line
        if mark is None:
            yield f'<path class="line" d="M{_MARGIN} {y:.1f}h18"/>'
            yield f'<path class="gate" d="M{_MARGIN + 9} {y - 5:.1f}v10"/>'
        else:
            yield f'<path class="line {_css(mark)}" d="M{_MARGIN} {y:.1f}h18"/>'
        yield f'<text x="{_MARGIN + _SAMPLE}" y="{y + 4:.1f}">{xml_text(text)}</text>'


def _gate(x: float, y: float) -> str:
    """The mark of a channel that is blocked."""
    return f'<path class="gate" d="M{x - 5:.1f} {y:.1f}h10"/>'


def _css(mark: Mark) -> str:
    return mark.value.replace(" ", "-")
